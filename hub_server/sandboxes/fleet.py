"""What takes the database and a node together: making sandboxes, ending them, and finding out what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from anyio import CapacityLimiter
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from hub_server.accounts.tables import User
from hub_server.database import Database
from hub_server.errors import NotFound, NotServing, Refusal, Unavailable
from hub_server.ids import new_id
from hub_server.operation import logs
from hub_server.sandbox_node.specification import GIBIBYTE, EndKind, Level
from hub_server.sandbox_node.wire import CreateSandbox, SandboxFacts, WireEnd, WireLimits
from hub_server.sandboxes import nodes, service
from hub_server.sandboxes.bodies import NewSandbox
from hub_server.sandboxes.egress import BadPolicy, Policy
from hub_server.sandboxes.node_client import NodeClient, NodeSilent
from hub_server.sandboxes.nodes import Offer, Reach, Strays
from hub_server.sandboxes.tables import Sandbox, SandboxNode
from hub_server.secrets.vault import Vault

_WAIT_S = 2.0  # how long a client waits for a sandbox before it is told that it is pending
_NODES_TRIED = 3
_LOOK_EVERY_S = 5.0
_FORGOTTEN = WireEnd(kind=EndKind.FAILED, message="its node does not know it any more: the node was started anew")
_ASKED_AT_ONCE = 16
_OFFERS_VALID_S = 1.0
_HEARTBEATS_AT_ONCE = 4
_KEYS_KEPT = 10_000


@dataclass(frozen=True)
class _Plan:
    """Where a new sandbox may go; or the one that the same request made before."""

    owner_id: str
    candidates: list[Offer]
    made_before: tuple[Sandbox, Reach | None] | None = None


@dataclass
class Fleet:
    """The nodes of a hub."""

    database: Database
    vault: Vault
    least: Level = Level.CONTAINER
    allow: Sequence[str] | None = None  # whom a sandbox may reach for which nothing was said; None: nobody
    client: NodeClient = field(default_factory=NodeClient)
    strays: Strays = field(default_factory=Strays)
    # Signs of life must not wait behind a thousand creations.
    for_heartbeats: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_HEARTBEATS_AT_ONCE))
    _keys_seen: dict[tuple[str, str], None] = field(default_factory=dict)
    _offers: list[Offer] = field(default_factory=list)
    _offers_until: float = 0.0

    async def create(self, user: User, new: NewSandbox) -> tuple[Sandbox, Reach | None]:
        """Make a sandbox on the best node, and return it and how its node is reached.

        The node is asked first and the row is added once, with what it said: one commit. A hub that dies in between
        leaves a sandbox without a row, which the node ends when the hub does not know it.

        Raises:
            Unavailable: there is no node, or none answers.
            Malformed: no node can give what is asked.
        """
        if new.egress is None and self.allow is not None:
            new = new.model_copy(update={"network_allowlist": list(self.allow)})
        plan = self._quick_plan(user, new)
        if plan is None:
            plan = await run_in_threadpool(self._plan, user, new)
        if plan.made_before is not None:
            return plan.made_before
        wanted = _wanted(new, plan.owner_id)
        try:
            reach, facts = await self._make(plan.candidates, wanted)
        except NodeSilent:
            self.forget_offers()  # they may have been of nodes that are somewhere else by now
            plan = await run_in_threadpool(self._plan, user, new)
            reach, facts = await self._make(plan.candidates, wanted)
        row, is_new = await run_in_threadpool(self._keep, user, new, plan.owner_id, reach, facts)
        if is_new:
            return row, reach
        await self._end_on(reach, [facts.sandbox_id])
        return row, await run_in_threadpool(self.reach_of_node, row.node_id)

    def forget_offers(self) -> None:
        """Look at the nodes anew for the next sandbox."""
        self._offers_until = 0.0

    async def delete(self, sandboxes: Sequence[Sandbox]) -> None:
        """End sandboxes. A node that does not answer now ends them when it reports them the next time."""
        await run_in_threadpool(self._end_rows, [sandbox.id for sandbox in sandboxes if sandbox.is_active])
        by_node: dict[str, list[str]] = {}
        for sandbox in sandboxes:
            if sandbox.is_active:
                by_node.setdefault(sandbox.node_id, []).append(sandbox.id)
        for node_id, ids in by_node.items():
            reach = await run_in_threadpool(self.reach_of_node, node_id)
            if reach is not None:
                await self._end_on(reach, ids)

    async def refresh(self, sandbox: Sandbox) -> Sandbox:
        """Return a sandbox as its node sees it now; as it stands here where the node does not answer."""
        if sandbox.is_active:
            await self.settle([sandbox.id], sandbox.node_id)
            return await run_in_threadpool(self._again, sandbox.id)
        return sandbox

    async def settle(self, sandbox_ids: Sequence[str], node_id: str) -> None:
        """Ask a node what became of some of its sandboxes, and write that down."""
        reach = await run_in_threadpool(self.reach_of_node, node_id)
        if reach is None:
            return
        turns = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(sandbox_id: str) -> SandboxFacts | None:
            async with turns:
                try:
                    return await self.client.facts(reach, sandbox_id)
                except NotFound:
                    return SandboxFacts(sandbox_id=sandbox_id, state="ended", end=_FORGOTTEN)
                except Refusal:
                    return None

        answers = [facts for facts in await asyncio.gather(*map(ask, sandbox_ids)) if facts is not None]
        await run_in_threadpool(self._note, answers)

    def reach_of_node(self, node_id: str) -> Reach | None:
        """Return how to talk to a node, also to one that is gone; None when that is not known any more."""
        with self.database.read() as session:
            node = session.get(SandboxNode, node_id)
            return nodes.reach_of(self.vault, node) if node is not None else None

    async def reach_or_refuse(self, sandbox: Sandbox) -> Reach:
        """Return how to talk to the node of a sandbox.

        Raises:
            Unavailable: nobody knows.
        """
        reach = await run_in_threadpool(self.reach_of_node, sandbox.node_id)
        if reach is None:
            raise Unavailable("the node of this sandbox has to register again first")
        return reach

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look for nodes that fell silent for the time of the block, and close all connections at its end."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self.client.close()

    async def look_for_silent_nodes(self) -> None:
        """Give up the nodes that were silent for too long and do not answer when they are asked.

        Signs of life may be late because this server has too much to do, and then nobody must lose a sandbox.
        """
        for node in await run_in_threadpool(self._silent):
            reach = nodes.reach_of(self.vault, node)
            if reach is not None and await self.client.is_there(reach):
                await run_in_threadpool(self._write, nodes.hear, node.id)
                continue
            ended = await run_in_threadpool(self._write, nodes.give_up, node.id)
            logs.log(logging.WARNING, "a sandbox node was lost", node=node.name, sandboxes=ended or 0)
            self.forget_offers()

    async def _watch(self) -> None:
        # After a pause of the hub all nodes look silent, and need a while to be heard again.
        await asyncio.sleep(nodes.LOST_AFTER.total_seconds())
        while True:
            try:
                await self.look_for_silent_nodes()
            except SQLAlchemyError as error:
                logs.log(logging.WARNING, "cannot look for lost nodes", error=str(error).splitlines()[0])
            await asyncio.sleep(_LOOK_EVERY_S)

    def _silent(self) -> list[SandboxNode]:
        with self.database.read() as session:
            return nodes.silent_nodes(session)

    def _write(self, change: Callable[[Session, str], int | None], node_id: str) -> int | None:
        with self.database.write() as session:
            return change(session, node_id)

    def _quick_plan(self, user: User, new: NewSandbox) -> _Plan | None:
        """Return a plan for which nothing has to be looked up; None where something has.

        A key that this server has not seen is taken for new: if it is not, the row of the new sandbox is refused.
        """
        was_seen = new.idempotency_key is not None and self._see(user.id, new.idempotency_key)
        if was_seen or new.team_id or not self._offers or time.monotonic() > self._offers_until:
            return None
        return self._plan_for(user.id, new)

    def _see(self, user_id: str, idempotency_key: str) -> bool:
        """Say whether a key was seen before."""
        key = (user_id, idempotency_key)
        if key in self._keys_seen:
            return True
        self._keys_seen[key] = None
        if len(self._keys_seen) > _KEYS_KEPT:
            del self._keys_seen[next(iter(self._keys_seen))]
        return False

    def _plan_for(self, owner_id: str, new: NewSandbox) -> _Plan:
        assert new.docker_image is not None
        least = max(self.least, new.min_level or self.least)
        return _Plan(owner_id, nodes.choose(self._offers, new.docker_image, least, new.arch))

    def _plan(self, user: User, new: NewSandbox) -> _Plan:
        with self.database.read() as session:
            owner_id = service.owner_of_new(session, user, new.team_id)
            made = service.made_before(session, owner_id, new.idempotency_key)
            if made is not None:
                node = session.get_one(SandboxNode, made.node_id)
                return _Plan(owner_id, [], (made, nodes.reach_of(self.vault, node)))
        if time.monotonic() > self._offers_until or not self._offers:
            self._offers = nodes.offers(self.database, self.vault)
            self._offers_until = time.monotonic() + _OFFERS_VALID_S
        return self._plan_for(owner_id, new)

    async def _make(self, candidates: Sequence[Offer], wanted: CreateSandbox) -> tuple[Reach, SandboxFacts]:
        silent: NodeSilent | None = None
        for offer in candidates[:_NODES_TRIED]:
            offer.live += 1  # what comes in the same second is to see it; the next look at the rows counts anew
            try:
                return offer.reach, await self.client.create(offer.reach, wanted)
            except NodeSilent as error:
                logs.log(logging.WARNING, "a sandbox node does not answer", node=offer.reach.name, reason=error.detail)
                silent = error
        raise silent or Unavailable("no sandbox node of this hub can be reached")

    def _keep(
        self, user: User, new: NewSandbox, owner_id: str, reach: Reach, facts: SandboxFacts
    ) -> tuple[Sandbox, bool]:
        """Add the row, and say whether this request won: another one with the same key may have been quicker."""
        try:
            with self.database.write(f"sandbox {facts.sandbox_id}") as session:
                return service.add(session, new, facts, owner_id=owner_id, user_id=user.id, node_id=reach.node_id), True
        except IntegrityError:
            with self.database.read() as session:
                made = service.made_before(session, owner_id, new.idempotency_key)
            if made is None:
                raise
            return made, False

    async def _end_on(self, reach: Reach, ids: list[str]) -> None:
        try:
            await self.client.delete(reach, ids)
        except Refusal as error:
            logs.log(logging.WARNING, "a node did not end sandboxes at once", node=reach.name, reason=error.detail)

    def _end_rows(self, ids: Sequence[str]) -> None:
        if ids:
            with self.database.write() as session:
                service.end(session, ids, service.DELETED)

    def _note(self, answers: Sequence[SandboxFacts]) -> None:
        if any(facts.state != "pending" for facts in answers):
            with self.database.write() as session:
                for facts in answers:
                    service.note(session, facts)

    def _again(self, sandbox_id: str) -> Sandbox:
        with self.database.read() as session:
            return session.get_one(Sandbox, sandbox_id)


def default_egress(allow: Sequence[str]) -> Sequence[str] | None:
    """Return the allowlist of sandboxes for which nothing is said, each entry in its one spelling; None: there is none.

    Raises:
        NotServing: one of the entries is none.
    """
    if not allow:
        return None
    try:
        return Policy.parse(list(allow), None).as_wire()["allowlist"]
    except BadPolicy as error:
        raise NotServing(f"--sandboxes-allow: {error}") from None


def _wanted(new: NewSandbox, owner_id: str) -> CreateSandbox:
    """Return what a node is asked for."""
    assert new.docker_image is not None
    command = new.start_command
    limits = WireLimits(
        cpu_cores=new.cpu_cores,
        memory_bytes=int(new.memory_gb * GIBIBYTE) or 1,
        disk_bytes=int(new.disk_size_gb * GIBIBYTE) or 1,
    )
    lifetime_s = new.timeout_minutes * 60.0 if new.timeout_minutes > 0 else None
    return CreateSandbox(
        sandbox_id=new_id(),
        image=new.docker_image,
        limits=limits,
        env={**(new.environment_vars or {}), **(new.secrets or {})},
        start_command=(command if command is None or isinstance(command, str) else [command.executable, *command.args]),
        lifetime_s=lifetime_s,
        idle_s=new.idle_timeout_minutes * 60.0 if new.idle_timeout_minutes is not None else None,
        egress=new.egress,
        vm=new.vm,
        min_level=new.min_level,
        owner=owner_id,
        wait_s=_WAIT_S,
        most_pending_s=lifetime_s or 3600.0,
    )
