"""The examples of an evaluation, read from the environment a page at a time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import EnvironmentWorkers, Split
from prime_cli.evals.settings import EvalSettings

_PAGE = 128


class Examples:
    """Rows of a set of the environment, of which only a page is in memory.

    Args:
        places: where in the set they are, in the order in which they are run.
    """

    def __init__(self, workers: EnvironmentWorkers, split: Split, places: Sequence[int]) -> None:
        self._workers = workers
        self._split = split
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    async def ids(self) -> list[Hashable]:
        """Return all `example_id`s."""
        rows = await self._workers.examples(self._split, rows=self._places, columns=["example_id"])
        return [row["example_id"] for row in rows]

    async def first(self, count: int) -> list[Mapping[str, Any]]:
        """Return the first rows."""
        return list(await self._workers.examples(self._split, rows=self._places[:count]))

    async def pages(self) -> AsyncIterator[list[Mapping[str, Any]]]:
        """Yield the rows, page after page."""
        for start in range(0, len(self._places), _PAGE):
            yield list(await self._workers.examples(self._split, rows=self._places[start : start + _PAGE]))


async def chosen_examples(workers: EnvironmentWorkers, settings: EvalSettings) -> Examples:
    """Return the first examples of the split, or with a seed some that it draws. The other split is not built.

    Raises:
        EnvironmentFailed: the environment cannot build the split.
        PrimeError: the split has none.
    """
    available = await workers.count(settings.split)
    if available == 0:
        other = "train" if settings.split == "eval" else "eval"
        raise PrimeError(f"{settings.environment} has no {settings.split} examples", hint=f"try `--split {other}`")
    count = available if settings.num_examples < 0 else min(available, settings.num_examples)
    if settings.seed is None:
        return Examples(workers, settings.split, range(count))
    places = random.Random(settings.seed).sample(range(available), count)  # noqa: S311 - no secret
    return Examples(workers, settings.split, places)
