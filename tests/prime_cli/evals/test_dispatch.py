"""Work that is started as it is admitted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from prime_cli.evals.dispatch import Admit, dispatch


@dataclass(frozen=True)
class Unit:
    number: int
    num_rollouts: int = 1


class Watch:
    """Carries out units in two turns of the loop, and counts."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.done: list[int] = []

    async def carry_out(self, unit: Unit) -> None:
        self.now += unit.num_rollouts
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.001)
            if unit.number == 13:
                raise ValueError("thirteen")
            self.done.append(unit.number)
        finally:
            self.now -= unit.num_rollouts


async def units(count: int, num_rollouts: int = 1, first: int = 0) -> AsyncIterator[Unit]:
    for number in range(first, first + count):
        yield Unit(number, num_rollouts)


def at_most(limit: int) -> Admit:
    return lambda new, in_flight: 0.0 if in_flight == 0 or in_flight + new <= limit else math.inf


def test_no_more_than_are_admitted_run_at_once_and_all_of_them_end() -> None:
    watch = Watch()
    assert asyncio.run(dispatch(units(12), watch.carry_out, at_most(4)))
    assert (watch.most, sorted(watch.done)) == (4, list(range(12)))


def test_a_unit_counts_as_its_rollouts_and_one_that_is_too_large_runs_alone() -> None:
    for size, most in ((3, 6), (9, 9)):
        watch = Watch()
        assert asyncio.run(dispatch(units(5, size), watch.carry_out, at_most(7)))
        assert (watch.most, len(watch.done)) == (most, 5)


def test_when_nothing_more_is_admitted_what_runs_is_finished() -> None:
    watch = Watch()

    def admit(new: int, in_flight: int) -> float | None:
        return None if len(watch.done) >= 4 else at_most(3)(new, in_flight)

    assert not asyncio.run(dispatch(units(100), watch.carry_out, admit))
    assert 4 <= len(watch.done) <= 7
    assert watch.now == 0


def test_a_failure_ends_everything_at_once() -> None:
    watch = Watch()
    with pytest.raises(ValueError, match="thirteen"):
        asyncio.run(dispatch(units(1000), watch.carry_out, at_most(3)))
    assert watch.now == 0
    assert len(watch.done) < 20


def test_what_is_to_wait_is_asked_again_after_its_time() -> None:
    watch, asked = Watch(), []

    def admit(new: int, in_flight: int) -> float:
        asked.append(in_flight)
        return 0.001 if len(asked) < 3 else 0.0

    assert asyncio.run(dispatch(units(1), watch.carry_out, admit))
    assert asked == [0, 0, 0]
