"""Which environment the next group comes from."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Mapping
from typing import Any


class SourceChooser:
    """Draws environments in proportion to their ratios.

    The n-th draw depends on the seed and n alone, so its whole state is a count.
    """

    def __init__(self, ratios: Mapping[str, float], seed: int) -> None:
        self._names = list(ratios)
        self._bounds = list(itertools.accumulate(ratios.values()))
        self._seed = seed
        self._drawn = 0

    def next(self) -> str:
        """Return the name of the environment to open a group of."""
        self._drawn += 1
        if len(self._names) == 1:
            return self._names[0]
        point = random.Random(f"{self._seed}/{self._drawn}").random() * self._bounds[-1]  # noqa: S311 - reproducible
        return self._names[min(bisect.bisect_right(self._bounds, point), len(self._names) - 1)]

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the chooser of that state was."""
        self._drawn = int(state["drawn"])
