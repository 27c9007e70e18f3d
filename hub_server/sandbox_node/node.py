"""The sandboxes of one machine: made through pools; ended by time, by their users or by themselves."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hub_server.operation import logs
from hub_server.sandbox_node.backends import Backend, Confined, RootFilesystem
from hub_server.sandbox_node.errors import Full, Gone, ImageNotThere, NotPossible, NotStarted, SandboxError
from hub_server.sandbox_node.memory import MemoryHeadroom
from hub_server.sandbox_node.network.egress import Egress
from hub_server.sandbox_node.network.exposures import Exposures
from hub_server.sandbox_node.network.proxy import Outside
from hub_server.sandbox_node.pool_plan import PoolSettings
from hub_server.sandbox_node.pools import PoolCounts, Pools
from hub_server.sandbox_node.resident import Resident
from hub_server.sandbox_node.sandbox import Sandbox, warm
from hub_server.sandbox_node.specification import End, EndKind, Level, Shape
from hub_server.sandbox_node.wire import CreateSandbox, EgressFacts, EgressPolicy, Event, SandboxFacts, State
from hub_server.sandboxes.egress import BadPolicy, Policy

_LOOK_EVERY_S = 0.25
_COLLECT_EVERY_S = 60.0
_DESTROYED_WITHIN_S = 60.0  # takes milliseconds, unless the kernel holds a process
_MOST_EVENTS = _MOST_ENDED = 10_000
# Descriptors, processes or memory of the host: they come back when sandboxes end.
_USED_UP = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class Images(Protocol):
    """Where root file systems come from."""

    async def find(self, reference: str) -> RootFilesystem:
        """Return the image of a name, which is fetched where the operator allows that.

        Raises:
            ImageNotThere: there is none.
        """

    def known(self, name: str) -> RootFilesystem | None:
        """Return the image of a full `name:tag` as it is in the store now."""

    def names(self) -> list[str]:
        """Return the images that are in the store."""

    def collect(self) -> None:
        """Remove the files of images that have no name any more and that nobody holds; it may block."""


@dataclass(frozen=True)
class NodeSettings:
    """What a node may do. What it makes has at least the level `min_level`."""

    pools: PoolSettings = field(default_factory=PoolSettings)
    min_level: Level = Level.CONTAINER
    outside: Outside = field(default_factory=Outside)


@dataclass(eq=False)
class Unused:
    """A sandbox in a pool."""

    confined: Confined
    image: RootFilesystem


def policy_of(policy: EgressPolicy) -> Policy:
    """Return a policy as it is enforced; where nothing is said, nobody may be reached.

    Raises:
        NotPossible: it is none; says why.
    """
    try:
        return Policy.parse(policy.allowlist, policy.denylist)
    except BadPolicy as error:
        raise NotPossible(str(error)) from None


class Node:
    """All sandboxes of this machine."""

    def __init__(
        self,
        backend: Backend,
        images: Images,
        settings: NodeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        has_memory: Callable[[], bool] | None = None,
    ) -> None:
        self.backend, self.images, self.settings = backend, images, settings
        self.events: list[Event] = []  # that the hub has not heard of
        self.has_events = asyncio.Event()
        self.exposures = Exposures()
        self._clock = clock
        self._residents: dict[str, Resident] = {}
        # Of these, those that have not ended, and those that have, in the order of their ends.
        self._live: dict[str, Resident] = {}
        self._ended: deque[Resident] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._pools: Pools[Unused] = Pools(
            settings.pools,
            self._make,
            self._destroy_unused,
            is_usable=self._is_usable,
            has_memory=has_memory or MemoryHeadroom(),
            clock=clock,
        )

    @property
    def counts(self) -> PoolCounts:
        """How full the node is."""
        return self._pools.counts

    def start(self) -> None:
        """Fill the pools, and look after the sandboxes from here on."""
        self._pools.start()
        self._spawn(self._look_after())

    async def create(self, creation: CreateSandbox) -> SandboxFacts:
        """Make a sandbox, or say how the one of this id is; `creation.wait_s` is how long that may take.

        Raises:
            NotPossible: no sandbox of this node can be as is asked.
        """
        resident = self._residents.get(creation.sandbox_id)
        if resident is None:
            if creation.min_level is not None and creation.min_level > self.backend.level:
                raise NotPossible(
                    f"this node gives level {self.backend.level.value}, and {creation.min_level.value} was asked for",
                    hint="`prime sandbox doctor` on the node says what lacks",
                )
            policy_of(creation.egress or EgressPolicy())
            resident = Resident(creation, self._clock)
            self._residents[creation.sandbox_id] = self._live[creation.sandbox_id] = resident
            resident.arrival = self._spawn(self._bring_up(resident))
        if not resident.settled.is_set() and creation.wait_s:
            resident.awaited += 1
            try:
                await asyncio.wait_for(resident.settled.wait(), creation.wait_s)
            except TimeoutError:
                pass
            finally:
                resident.awaited -= 1
        return resident.facts()

    def get(self, sandbox_id: str) -> Sandbox:
        """Return a sandbox that runs.

        Raises:
            KeyError: there is none of this id.
            NotStarted: it does not run yet.
            Gone: it has ended.
        """
        resident = self._residents[sandbox_id]
        if resident.end is not None:
            raise Gone(resident.end)
        if resident.sandbox is None or resident.state == "pending":
            raise NotStarted(f"sandbox {sandbox_id} waits for room on its node")
        return resident.sandbox

    def resident(self, sandbox_id: str) -> Resident:
        """Return what is known of a sandbox, also of one that waits or has ended; KeyError."""
        return self._residents[sandbox_id]

    def states(self) -> dict[str, State]:
        """Return the sandboxes that are there or are to come."""
        return {resident.creation.sandbox_id: resident.state for resident in self._live.values()}

    async def delete(self, sandbox_id: str, end: End | None = None) -> SandboxFacts:
        """End a sandbox, and return when nothing of it is left; KeyError. Who asks for it needs to be told no more."""
        resident = self._residents[sandbox_id]
        resident.awaited += 1
        await self._end(resident, end or End(EndKind.DELETED, "it was deleted"))
        return resident.facts()

    async def delete_many(self, sandbox_ids: Sequence[str]) -> list[str]:
        """End those sandboxes that are there, all at once, and return their ids."""
        there = [name for name in dict.fromkeys(sandbox_ids) if name in self._residents]
        await asyncio.gather(*map(self.delete, there))
        return there

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> EgressFacts:
        """Change whom a sandbox may reach; KeyError.

        Raises:
            NotPossible: the policy is none.
            NotStarted, Gone: it does not run.
        """
        policy_of(policy)
        self.get(sandbox_id)
        return await self._set_egress(self._residents[sandbox_id], policy)

    def egress(self, sandbox_id: str) -> EgressFacts:
        """Return whom a sandbox may reach; KeyError.

        Raises:
            NotStarted, Gone: it does not run.
        """
        self.get(sandbox_id)
        return self._residents[sandbox_id].egress_facts()

    def take_events(self) -> list[Event]:
        """Return the events that the hub is to hear of; `heard` removes them."""
        self.has_events.clear()
        return list(self.events)

    def heard(self, events: list[Event]) -> None:
        """Forget events that the hub has heard of."""
        told = set(map(id, events))
        self.events = [event for event in self.events if id(event) not in told]

    async def close(self) -> None:
        """End all sandboxes, and the backend; it may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        end = End(EndKind.FAILED, "its node was ended")
        await asyncio.gather(*(self._end(resident, end) for resident in list(self._residents.values())))
        await self._pools.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.backend.close()

    async def _bring_up(self, resident: Resident) -> None:
        """Get a sandbox for a resident, and follow its start command."""
        creation = resident.creation
        try:
            image = await self.images.find(creation.image)
            unused = await self._take(Shape(image.name, creation.limits.limits()), image, creation.owner)
            # From here on the sandbox is the resident's, and goes when that goes.
            sandbox = Sandbox(creation.sandbox_id, image.name, unused.confined, {**image.environment, **creation.env})
            sandbox.working_dir = image.working_dir
            resident.gets(sandbox, Egress(sandbox, self.settings.outside), unused.image)
            sandbox.end.add_done_callback(lambda end: self._begin_end(resident, end.result()))
            await self._set_egress(resident, creation.egress or EgressPolicy())
        except SandboxError as error:
            known = {kind.value: kind for kind in EndKind}
            kind = known.get(getattr(error, "kind", None) or "", EndKind.FAILED)
            self._begin_end(resident, End(kind, error.detail))
            return
        except Exception as error:  # noqa: BLE001 - nobody is to wait for what will never come
            logs.log(logging.ERROR, "a sandbox could not be made", sandbox=creation.sandbox_id, error=repr(error))
            self._begin_end(resident, End(EndKind.FAILED, f"the node could not make it: {type(error).__name__}"))
            return
        resident.runs()
        self._tell(resident)
        end = await resident.follow_start_command()
        if end is not None:
            self._begin_end(resident, end)

    async def _take(self, shape: Shape, image: RootFilesystem, owner: str) -> Unused:
        """Return an unused sandbox of an image; those made before its name got another one are given up."""
        while (unused := await self._pools.take(shape, owner)).image != image:
            self._spawn(self._give_back(unused))
        return unused

    async def _give_back(self, unused: Unused) -> None:
        try:
            await unused.confined.destroy()
        finally:
            self._pools.ended()

    async def _set_egress(self, resident: Resident, policy: EgressPolicy) -> EgressFacts:
        assert resident.egress is not None
        await resident.egress.set(policy_of(policy))
        resident.policy = policy
        return resident.egress_facts()

    def _begin_end(self, resident: Resident, end: End) -> None:
        """Let a resident end, of which the first reason counts."""
        if resident.end is None:
            resident.has_ended(end)
            self._ended.append(self._live.pop(resident.creation.sandbox_id))
            self._tell(resident)
            resident.departure = self._spawn(self._depart(resident, end))

    async def _end(self, resident: Resident, end: End) -> None:
        self._begin_end(resident, end)
        assert resident.departure is not None
        await asyncio.shield(resident.departure)

    async def _depart(self, resident: Resident, end: End) -> None:
        if resident.arrival is not None:
            resident.arrival.cancel()
            await asyncio.gather(resident.arrival, return_exceptions=True)
        if resident.sandbox is not None:
            try:
                async with asyncio.timeout(_DESTROYED_WITHIN_S):
                    await resident.sandbox.destroy(end)
            except Exception as error:  # noqa: BLE001 - what resists is removed when the node ends
                logs.log(
                    logging.ERROR, "a sandbox could not be destroyed", sandbox=resident.sandbox.id, error=repr(error)
                )
            resident.let_go()
            self._pools.ended()

    async def _look_after(self) -> None:
        """End what is due, forget what ended long ago, and let images go that were removed or replaced."""
        collected_at = self._clock()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._clock() - collected_at >= _COLLECT_EVERY_S:
                collected_at = self._clock()
                try:
                    await asyncio.to_thread(self.images.collect)
                except (SandboxError, OSError) as error:
                    logs.log(logging.WARNING, "the store of images cannot be tidied", error=str(error))
            for resident in list(self._live.values()):
                if (end := resident.due()) is not None:
                    self._begin_end(resident, end)
            while self._ended and (self._ended[0].is_forgotten() or len(self._ended) > _MOST_ENDED):
                del self._residents[self._ended.popleft().creation.sandbox_id]

    def _tell(self, resident: Resident) -> None:
        """Let the hub hear how a sandbox stands, unless it waits for the answer to just that."""
        if resident.awaited:
            return
        self.events.append(Event(facts=resident.facts(), at=time.time()))
        # A hub that is away for long, or none at all: signs of life say what lives, and the hub may ask for the rest.
        del self.events[:-_MOST_EVENTS]
        self.has_events.set()

    async def _make(self, shape: Shape) -> Unused:
        image = self.images.known(shape.image)
        if image is None:
            raise ImageNotThere(f"the image {shape.image} was removed")
        try:
            confined = await self.backend.create(f"s{secrets.token_hex(6)}", image, shape.limits)
        except OSError as error:
            if error.errno in _USED_UP:
                raise Full(f"the host has no more for now: {error.strerror}") from error
            raise
        if confined.enforcement.level < self.settings.min_level:
            await confined.destroy()
            raise NotPossible(f"a sandbox got level {confined.enforcement.level.value} only")
        if not self.counts.waiting:
            warm(confined.link)  # there is time
        return Unused(confined, image)

    async def _destroy_unused(self, unused: Unused) -> None:
        await unused.confined.destroy()

    def _is_usable(self, shape: Shape, unused: Unused) -> bool:
        """Tell whether its agent lives."""
        return not unused.confined.link.closed.done()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
