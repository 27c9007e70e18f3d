"""The order in which demonstrations are shown: epochs, shuffled and mixed, and batches cut from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Index = tuple[int, int]
"""Which source, and which of its demonstrations."""


@dataclass(frozen=True)
class Mixture:
    """How the sources make up an epoch.

    Args:
        counts: demonstrations in each source.
        probabilities: chance of each source at every draw; None puts all of them together.
        until_all_are_used_up: with probabilities, whether smaller sources repeat until all were seen whole.
    """

    counts: Sequence[int]
    probabilities: Sequence[float] | None = None
    until_all_are_used_up: bool = True
    shuffle: bool = True
    seed: int = 0

    def epoch(self, number: int) -> list[Index]:
        """Return the order of an epoch, which depends on nothing but this and its number."""
        orders = [self._order(source, number) for source in range(len(self.counts))]
        if self.probabilities is None:
            together = [index for order in orders for index in order]
            if self.shuffle and len(orders) > 1:
                self._rng(number, "all").shuffle(together)
            return together
        return self._drawn(orders, number)

    def _order(self, source: int, number: int, *, again: int = 0) -> list[Index]:
        order = [(source, place) for place in range(self.counts[source])]
        if self.shuffle:
            # One source alone keeps the order that it always had under a seed.
            alone = len(self.counts) == 1 and not again
            (self._rng(number) if alone else self._rng(number, source, again)).shuffle(order)
        return order

    def _drawn(self, orders: list[list[Index]], number: int) -> list[Index]:
        assert self.probabilities is not None, "only a mixture by chance is drawn"
        rng = self._rng(number, "draw")
        sources = range(len(orders))
        taken, rounds = [0] * len(orders), [0] * len(orders)
        drawn: list[Index] = []
        while True:
            source = rng.choices(sources, self.probabilities)[0]
            drawn.append(orders[source][taken[source]])
            taken[source] += 1
            if taken[source] == len(orders[source]):
                rounds[source] += 1
                if all(rounds) or not self.until_all_are_used_up:
                    return drawn
                orders[source], taken[source] = self._order(source, number, again=rounds[source]), 0

    def _rng(self, number: int, *parts: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, number, *parts))))  # noqa: S311 - reproducible, no secret


class Batches:
    """Cuts batches from epoch after epoch; a batch that an epoch does not fill is filled from the next one.

    `state` says where it stands; another one with the same mixture goes on from there.
    """

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture
        self._epoch = 0
        self._position = 0
        self._order = mixture.epoch(0)

    @property
    def epochs(self) -> float:
        """How often everything was shown so far."""
        return self._epoch + self._position / len(self._order)

    def take(self, count: int) -> list[Index]:
        """Return the next `count`."""
        return [self._next() for _ in range(count)]

    def take_rows(self, rows: int, capacity: int, lengths: Sequence[Sequence[int]]) -> list[Index]:
        """Return the next ones that fit into `rows` rows of `capacity` tokens, each put where there is room first.

        At least one is returned. The first that fits nowhere is the first of the next call.

        Args:
            lengths: tokens of each demonstration of each source, none above `capacity`.
        """
        room = [capacity] * rows
        taken: list[Index] = []
        while True:
            source, place = self._peek()
            length = lengths[source][place]
            row = next((row for row, free in enumerate(room) if free >= length), None)
            if row is None and taken:
                return taken
            if row is not None:
                room[row] -= length
            taken.append(self._next())

    def state(self) -> dict[str, Any]:
        """Return where this stands."""
        return {"epoch": self._epoch, "position": self._position}

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Stand where another one stood when it said its `state`."""
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._mixture.epoch(self._epoch)

    def _peek(self) -> Index:
        if self._position == len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._mixture.epoch(self._epoch)
        return self._order[self._position]

    def _next(self) -> Index:
        index = self._peek()
        self._position += 1
        return index
