"""Permits that evaluations share."""

from __future__ import annotations

import asyncio
import contextlib

from prime_cli.evals.permits import Permits


async def test_no_more_run_at_once_than_there_are_permits_and_who_asks_first_is_first() -> None:
    permits, running, most, order = Permits(4), 0, 0, []

    async def work(name: int, count: int) -> None:
        nonlocal running, most
        async with permits.taken(count):
            running += count
            most = max(most, running)
            order.append(name)
            await asyncio.sleep(0)
            running -= count

    # The third needs more than is free when it asks; the fourth, which would fit, does not pass it by.
    await asyncio.gather(*(work(name, count) for name, count in enumerate([1, 2, 4, 1, 1])))
    assert most == 4
    assert order == [0, 1, 2, 3, 4]


async def test_who_asks_for_more_than_there_are_gets_all_of_them() -> None:
    async with asyncio.timeout(1), Permits(2).taken(16):
        pass


async def test_who_gives_up_waiting_keeps_no_permit() -> None:
    permits = Permits(1)
    async with permits.taken(1):
        waiting = [asyncio.create_task(_hold(permits)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    waiting[1].cancel()  # it was its turn, and it did not know yet
    for task in waiting:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    async with asyncio.timeout(1), permits.taken(1):
        pass


async def _hold(permits: Permits) -> None:
    async with permits.taken(1):
        await asyncio.sleep(0)
