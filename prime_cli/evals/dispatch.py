"""Starts the work of an evaluation as it is admitted, and sees it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar


class Unit(Protocol):
    """Something to run, that counts as so many rollouts."""

    @property
    def num_rollouts(self) -> int:
        """How many rollouts are in flight while it runs."""


U = TypeVar("U", bound=Unit)
Admit = Callable[[int, int], float | None]
"""Asked with the rollouts of the next unit and those in flight: 0 starts it, a number asks again after so many seconds
or when something has ended (`math.inf`: only then), None starts nothing more."""


async def dispatch(units: AsyncIterator[U], carry_out: Callable[[U], Awaitable[None]], admit: Admit) -> bool:
    """Carry out the units, side by side as `admit` allows; return whether all of them were.

    What `carry_out` or `admit` raises ends everything at once and is raised.
    """
    running: dict[asyncio.Future[None], int] = {}
    failures: list[BaseException] = []
    changed = asyncio.Event()

    def ended(task: asyncio.Future[None]) -> None:
        del running[task]
        if not task.cancelled() and (failure := task.exception()) is not None:
            failures.append(failure)
        changed.set()

    async def pause(seconds: float) -> None:
        changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await changed.wait()
        if failures:
            raise failures[0]

    complete = True
    try:
        async for unit in units:
            while delay := admit(unit.num_rollouts, sum(running.values())):
                await pause(delay)
            if delay is None:
                complete = False
                break
            task: asyncio.Future[None] = asyncio.ensure_future(carry_out(unit))
            running[task] = unit.num_rollouts
            task.add_done_callback(ended)
        while running:
            await pause(math.inf)
    finally:
        left = list(running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    return complete
