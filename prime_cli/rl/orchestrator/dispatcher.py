"""Keeps groups in flight, and hands each one over exactly once: finished, or cancelled.

A permit is a rollout in flight. A group takes its permits when it is dispatched and gives them back when it is handed
over; a cancelled one when its work has really ended, so that what it held elsewhere is free as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from prime_cli.rl.orchestrator.curriculum import Concurrency
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup

_CLOSE_GRACE_S = 5.0

Generate = Callable[[OpenGroup], Awaitable[FinishedGroup]]
"""Generates and scores the rollouts of a group; what goes wrong in one is data in it."""

Teach = Callable[[FinishedGroup], Awaitable[None]]
"""Puts the samples of a finished group into it."""


@dataclass(frozen=True)
class Cancelled:
    """A group that was given up in flight; `reopen` says that its example is still owed."""

    opened: OpenGroup
    reopen: bool


Outcome = FinishedGroup | Cancelled


@dataclass
class _InFlight:
    opened: OpenGroup
    task: asyncio.Task[FinishedGroup]
    taught: asyncio.Event = field(default_factory=asyncio.Event)
    generated: bool = False
    cancelled: bool = False
    reopen: bool = False


class Dispatcher:
    """Runs groups side by side.

    Args:
        generate: generates the rollouts of a group.
        teach: turns them into samples.
        concurrency: how many rollouts may be in flight.
        wake: called when a group has ended.
        in_order: hand groups over in the order of their dispatch, and teach in that order, so that a run does not
            depend on which group was quicker.
    """

    def __init__(
        self, generate: Generate, teach: Teach, concurrency: Concurrency, wake: Callable[[], None], *, in_order: bool
    ) -> None:
        self._generate = generate
        self._teach = teach
        self._concurrency = concurrency
        self._wake = wake
        self._in_order = in_order
        self._inflight: dict[int, _InFlight] = {}
        self._ended: deque[int] = deque()
        self.rollouts_in_flight = 0
        self.rollouts_finished = 0

    @property
    def groups(self) -> list[OpenGroup]:
        """The groups in flight, in the order of their dispatch."""
        return [entry.opened for entry in self._inflight.values()]

    @property
    def wanted(self) -> list[OpenGroup]:
        """Those of them that were not given up for good."""
        return [entry.opened for entry in self._inflight.values() if entry.reopen or not entry.cancelled]

    def has_room_for(self, rollouts: int) -> bool:
        """Say whether a group of so many rollouts may be dispatched now; one may be whenever nothing else is."""
        return not self._inflight or self.rollouts_in_flight + rollouts <= self._concurrency.limit()

    def dispatch(self, opened: OpenGroup) -> None:
        """Start a group."""
        assert opened.number not in self._inflight, f"group {opened.number} is in flight already"
        before = next(reversed(self._inflight.values()), None) if self._in_order else None
        task = asyncio.ensure_future(self._work(opened, before))
        entry = self._inflight[opened.number] = _InFlight(opened, task)
        self.rollouts_in_flight += opened.size
        task.add_done_callback(lambda _: self._note_end(entry))

    def cancel(self, number: int, *, reopen: bool = False) -> None:
        """Give up a group in flight; it is handed over as cancelled once its work has ended."""
        entry = self._inflight[number]
        if not entry.cancelled:
            entry.cancelled, entry.reopen = True, reopen
            entry.task.cancel()

    def shed(self, rollouts: int) -> None:
        """Give up the youngest groups that still generate, at least so many rollouts; they are opened again."""
        for entry in reversed(list(self._inflight.values())):
            if rollouts <= 0:
                break
            if not entry.cancelled and not entry.generated:
                rollouts -= entry.opened.size
                self.cancel(entry.opened.number, reopen=True)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what has ended since the last call, each group once.

        Raises:
            Exception: whatever generating or teaching raised, which ends the run.
        """
        while (number := self._next_ended()) is not None:
            entry = self._inflight.pop(number)
            self.rollouts_in_flight -= entry.opened.size
            if entry.cancelled:
                if not entry.task.cancelled():
                    entry.task.exception()  # nobody is interested any more
                yield Cancelled(entry.opened, entry.reopen)
            else:
                self.rollouts_finished += entry.opened.size
                yield entry.task.result()

    async def close(self) -> None:
        """Cancel everything, and give it a little time to end."""
        tasks = [entry.task for entry in self._inflight.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_GRACE_S)

    def _next_ended(self) -> int | None:
        if not self._in_order:
            return self._ended.popleft() if self._ended else None
        first = next(iter(self._inflight.values()), None)
        return first.opened.number if first is not None and first.task.done() else None

    def _note_end(self, entry: _InFlight) -> None:
        entry.taught.set()  # one that was cancelled never came to it, and the next one must not wait for it
        if not self._in_order:
            self._ended.append(entry.opened.number)
        self._wake()

    async def _work(self, opened: OpenGroup, before: _InFlight | None) -> FinishedGroup:
        group = await self._generate(opened)
        mine = self._inflight[opened.number]
        mine.generated = True
        if before is not None:
            await before.taught.wait()
        # Nothing is awaited from here until the algorithm has begun with this group.
        mine.taught.set()
        await self._teach(group)
        return group
