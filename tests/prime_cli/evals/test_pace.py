"""Rollouts in flight where a server refuses what is too much, and the waiting of requests."""

from __future__ import annotations

import asyncio
import email.utils
import math
import time

import pytest

from prime_cli.environments.worker_patience import Patience, retry_after_s
from prime_cli.evals.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_all_refusals_of_one_pause_cut_the_number_once_and_nothing_starts_in_it() -> None:
    clock = Clock()
    pace = Pace(60, clock=clock)
    for delay_s in (2.0, 1.0, 4.0):
        pace.refused(delay_s)
    assert (pace.limit, pace.num_refusals, pace.pause_s) == (40, 3, 4.0)
    assert pace.delay(1, 0) == 4.0
    clock.now += 4.0
    assert pace.delay(1, 39) == 0.0
    assert math.isinf(pace.delay(1, 40))
    pace.refused(1.0)
    assert pace.limit == 26


def test_the_number_grows_again_when_all_goes_well_and_never_beyond_what_was_asked_for() -> None:
    clock = Clock()
    pace = Pace(8, clock=clock)
    for _ in range(20):
        pace.refused(1.0)
        clock.now += 1.0
    assert pace.limit == 1
    seen = set()
    for _ in range(60):
        pace.ended(1)
        seen.add(pace.limit)
    assert seen == set(range(2, 9))


def test_something_larger_than_the_number_runs_alone() -> None:
    assert Pace(4).delay(9, 0) == 0.0
    assert math.isinf(Pace(4).delay(9, 1))


def patience(clock: Clock, told: list[float], patience_s: float = 100.0) -> Patience:
    return Patience(patience_s, told.append, clock=clock, sleep=clock.sleep, chance=lambda: 0.0)


def test_a_refused_request_waits_as_long_as_the_server_says_and_so_do_the_others() -> None:
    clock, told = Clock(), list[float]()
    waits = patience(clock, told)
    assert waits.allows_another_try(429, {"Retry-After": "7"}, b"", clock.now, 1)
    asyncio.run(waits.wait())
    assert (clock.now, told) == (107.0, [7.0])
    asyncio.run(waits.wait())
    assert clock.now == 107.0


def test_where_the_server_names_no_time_it_doubles_up_to_a_minute() -> None:
    clock, told = Clock(), list[float]()
    waits = patience(clock, told, patience_s=10_000.0)
    assert all(waits.allows_another_try(429, {}, b"", clock.now, tries) for tries in range(1, 10))
    assert told == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (500, {}, b""),
        (503, {}, b""),
        (429, {"Retry-After": "3600"}, b""),
        (429, {}, b'{"error": {"code": "insufficient_quota"}}'),
    ],
)
def test_a_request_that_waiting_does_not_help_is_not_sent_again(
    status: int, headers: dict[str, str], body: bytes
) -> None:
    told: list[float] = []
    assert not patience(Clock(), told).allows_another_try(status, headers, body, 100.0, 1)
    assert not told


def test_patience_ends() -> None:
    clock = Clock()
    assert not patience(clock, []).allows_another_try(429, {"Retry-After": "7"}, b"", clock.now - 95, 3)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, 0.0),
    ],
)
def test_the_time_that_a_server_names(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_the_time_that_a_server_names_as_a_date() -> None:
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after_s({"Retry-After": date}) == pytest.approx(30, abs=2)
