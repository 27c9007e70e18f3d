"""The order in which examples are opened: every epoch a fresh shuffle under the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any


class ShuffledSampler:
    """Gives indices below `count` for ever, each once per epoch; seed and epoch give the order of an epoch.

    Raises:
        ValueError: there is nothing to draw from.
    """

    def __init__(self, count: int, seed: int) -> None:
        if count < 1:
            raise ValueError("the environment has no training examples")
        self._count = count
        self._seed = seed
        self._drawn = 0
        self._order: list[int] = []
        self._order_of = -1

    def next(self) -> int:
        """Return the index of the example to open next."""
        epoch, place = divmod(self._drawn, self._count)
        if epoch != self._order_of:
            self._order = list(range(self._count))
            random.Random(f"{self._seed}/{epoch}").shuffle(self._order)  # noqa: S311 - reproducible, not secret
            self._order_of = epoch
        self._drawn += 1
        return self._order[place]

    def told(self, example: int, rewards: Sequence[float]) -> None:
        """Nothing follows from rewards here."""

    def metrics(self) -> dict[str, float]:
        """Return how often the examples were gone through."""
        return {"epochs": self._drawn / self._count}

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the sampler of that state was."""
        self._drawn = int(state["drawn"])
