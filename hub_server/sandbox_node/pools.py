"""Does what `pool_plan` decides: makes sandboxes ahead of their use, hands them out, destroys those of no use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic

from hub_server.operation import logs
from hub_server.sandbox_node.errors import Full, ImageNotThere, NotPossible, NotStarted
from hub_server.sandbox_node.pool_plan import Decision, GiveUp, Hand, Item, Make, PoolPlan, PoolSettings, Tell, Ticket
from hub_server.sandbox_node.specification import Shape

_TICK_S = 1.0
# Who has just taken a sandbox uses it now: the next one is made when that is under way, unless somebody waits for it.
_UNHURRIED_S = 0.06
_VAIN = (ImageNotThere, NotPossible)  # errors that another attempt would not mend


@dataclass(frozen=True)
class PoolCounts:
    """How many sandboxes there are, and how many callers wait for one."""

    used: int
    idle: int
    making: int
    waiting: int


class Pools(Generic[Item]):
    """Sandboxes to take. Each that was taken is to be given back with `ended` once it is gone.

    `make` and `destroy` make and destroy one; `is_usable` tells whether an unused one may still be handed out, and
    `has_memory` whether the machine bears another one. Times come from `clock`.
    """

    def __init__(
        self,
        settings: PoolSettings,
        make: Callable[[Shape], Awaitable[Item]],
        destroy: Callable[[Item], Awaitable[None]],
        *,
        is_usable: Callable[[Shape, Item], bool] = lambda shape, item: True,
        has_memory: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan: PoolPlan[Item] = PoolPlan(settings, is_usable, has_memory)
        self._make, self._destroy, self._clock = make, destroy, clock
        self._callers: dict[Ticket, asyncio.Future[Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._closed = False
        self._somebody_waits = asyncio.Event()

    @property
    def counts(self) -> PoolCounts:
        """How full the pools are."""
        plan = self._plan
        return PoolCounts(plan.used, plan.idle_count, plan.making.total(), len(plan.queue))

    def start(self) -> None:
        """Begin to fill the pools that are always kept."""
        self._ticking = asyncio.create_task(self._tick())

    async def take(self, shape: Shape, owner: str = "") -> Item:
        """Return a sandbox that nobody used before, as soon as there is one. Cancel it to give up waiting.

        Raises:
            NotStarted: none of this shape can be made, whenever one asks.
        """
        if self._closed:
            raise NotStarted("the node is ending")
        ticket = self._plan.ask(shape, owner, self._clock())
        caller: asyncio.Future[Item] = asyncio.get_running_loop().create_future()
        self._callers[ticket] = caller
        self._advance()
        if not caller.done():
            self._somebody_waits.set()
        try:
            return await caller
        except asyncio.CancelledError:
            self._plan.leave(ticket)
            if caller.done() and not caller.cancelled() and caller.exception() is None:
                # It was handed out in the same moment; nobody will use it.
                self._start(self._destroy_handed(caller.result()))
            raise
        finally:
            self._callers.pop(ticket, None)

    def ended(self) -> None:
        """Say that a sandbox which was taken is gone."""
        self._plan.ended()
        self._advance()

    async def close(self) -> None:
        """Destroy what nobody has taken, and wait for what is being made; callers get NotStarted."""
        self._closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        for caller in self._callers.values():
            if not caller.done():
                caller.set_exception(NotStarted("the node is ending"))
        while True:
            self._do(self._plan.give_up_all())
            if not self._tasks:
                return
            await asyncio.wait(set(self._tasks))

    def _advance(self) -> None:
        if not self._closed:
            self._do(self._plan.decide(self._clock()))

    def _do(self, decisions: list[Decision[Item]]) -> None:
        for decision in decisions:
            match decision:
                case Hand(ticket, item):
                    self._hand(ticket, item)
                case Make(shape):
                    self._start(self._make_one(shape))
                case GiveUp(item):
                    self._start(self._destroy_idle(item))
                case Tell(ticket, error):
                    caller = self._callers.get(ticket)
                    if caller is not None and not caller.done():
                        caller.set_exception(error)

    def _hand(self, ticket: Ticket, item: Item) -> None:
        caller = self._callers.get(ticket)
        if caller is None or caller.done():
            self._start(self._destroy_handed(item))
        else:
            caller.set_result(item)

    async def _make_one(self, shape: Shape) -> None:
        await self._take_time()
        try:
            item = await self._make(shape)
        except Full:
            self._plan.not_now(shape, self._clock())
        except Exception as error:  # noqa: BLE001 - whatever it is, callers are to hear of it and not to wait for good
            logs.log(logging.WARNING, "a sandbox could not be made", image=shape.image, error=str(error))
            known = (
                error if isinstance(error, NotStarted | NotPossible) else NotStarted(f"{type(error).__name__}: {error}")
            )
            self._plan.not_made(shape, known, self._clock(), is_final=isinstance(error, _VAIN))
        else:
            self._plan.made(shape, item, self._clock())
        self._advance()

    async def _take_time(self) -> None:
        if not self._plan.queue:
            self._somebody_waits.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._somebody_waits.wait(), _UNHURRIED_S)

    async def _destroy_idle(self, item: Item) -> None:
        await self._destroy_one(item)
        self._plan.given_up()
        self._advance()

    async def _destroy_handed(self, item: Item) -> None:
        await self._destroy_one(item)
        self.ended()

    async def _destroy_one(self, item: Item) -> None:
        try:
            await self._destroy(item)
        except Exception as error:  # noqa: BLE001 - one that resists must not stop the pools
            logs.log(
                logging.ERROR, "an unused sandbox could not be destroyed", error=f"{type(error).__name__}: {error}"
            )

    async def _tick(self) -> None:
        """Decide again now and then: demand fades, sandboxes die unseen, memory comes back, pauses end."""
        while True:
            self._advance()
            now = self._clock()
            change = self._plan.next_change(now)
            await asyncio.sleep(_TICK_S if change is None else min(_TICK_S, max(0.01, change - now)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
