"""The order in which examples are opened: every epoch a fresh shuffle under the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator


def shuffled_forever(count: int, seed: int) -> Iterator[int]:
    """Yield indices below `count` for ever, each once per epoch, the order of an epoch given by seed and epoch.

    Raises:
        ValueError: there is nothing to draw from.
    """
    if count < 1:
        raise ValueError("the environment has no training examples")
    epoch = 0
    while True:
        order = list(range(count))
        random.Random(f"{seed}/{epoch}").shuffle(order)  # noqa: S311 - reproducible, not secret
        yield from order
        epoch += 1
