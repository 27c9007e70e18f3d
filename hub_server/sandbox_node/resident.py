"""One sandbox of a node as the hub knows it: from when it was asked for until its end is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.log_ring import LogRing
from hub_server.sandbox_node.network.egress import Egress
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
from hub_server.sandbox_node.specification import Command, End, Ended, EndKind, Enforcement
from hub_server.sandbox_node.wire import (
    CreateSandbox,
    EgressFacts,
    EgressPolicy,
    SandboxFacts,
    State,
    WireEnd,
    WireEnforcement,
)

FORGOTTEN_AFTER_S = 600.0
_PLACEHOLDER = ("tail", "-f", "/dev/null")


def argv_of(start_command: str | Sequence[str] | None) -> list[str] | None:
    """Return what is to be run when a sandbox starts.

    None where it is nothing, or the command that older clients send to keep a container alive: here a sandbox lives
    without one, and a process for it would only cost.
    """
    if not start_command:
        return None
    if isinstance(start_command, str):
        return None if tuple(start_command.split()) == _PLACEHOLDER else ["/bin/sh", "-c", start_command]
    return None if tuple(start_command) == _PLACEHOLDER else list(start_command)


class Resident:
    """State, limits of time, start command and end of one sandbox."""

    def __init__(self, creation: CreateSandbox, clock: Callable[[], float] = time.monotonic) -> None:
        self.creation = creation
        self.sandbox: Sandbox | None = None
        self.egress: Egress | None = None
        self.image: RootFilesystem | None = None  # its files stay for as long as somebody has this
        self.enforcement: Enforcement | None = None
        self.policy = creation.egress or EgressPolicy()  # of egress, in the words of who set it
        self.end: End | None = None
        self.log = LogRing()
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.start_command_exit_code: int | None = None
        self.awaited = 0  # requests of the hub that will be answered with what becomes of it
        self.settled = asyncio.Event()  # it runs, or has ended
        self.arrival: asyncio.Task[None] | None = None  # gets it a sandbox, and follows its start command
        self.departure: asyncio.Task[None] | None = None  # destroys it
        self._clock, self._started, self._ended, self._asked = clock, 0.0, 0.0, clock()
        self._following = 0

    @property
    def state(self) -> State:
        """Where it is in its life."""
        if self.end is not None:
            return "ended"
        return "pending" if self.started_at is None else "running"

    def gets(self, sandbox: Sandbox, egress: Egress, image: RootFilesystem) -> None:
        """Take in the sandbox that it got, which is not ready yet, and the image that it is of."""
        self.sandbox, self.egress, self.image = sandbox, egress, image
        self.enforcement = sandbox.enforcement

    def let_go(self) -> None:
        """Keep no more than what may be asked for once it has ended."""
        self.sandbox = self.egress = self.image = None

    def runs(self) -> None:
        """Take in that it is ready."""
        self.started_at, self._started = time.time(), self._clock()
        self.settled.set()

    def has_ended(self, end: End) -> None:
        """Take in how it ended."""
        self.end = end
        self.ended_at, self._ended = time.time(), self._clock()
        self.settled.set()

    def due(self) -> End | None:
        """Return the end that is due by now, of those that come with time."""
        now, creation = self._clock(), self.creation
        if self.end is not None:
            return None
        if self.sandbox is None or self.started_at is None:
            if now - self._asked >= creation.most_pending_s:
                return End(EndKind.FAILED, f"there was no room for it within {creation.most_pending_s:g} s")
            return None
        if creation.lifetime_s is not None and now - self._started >= creation.lifetime_s:
            return End(EndKind.TIMEOUT, f"its lifetime of {creation.lifetime_s:g} s is over")
        is_attached = self.sandbox.attached > self._following
        if creation.idle_s is None or is_attached:
            return None
        if now - max(self._started, self.sandbox.last_used) >= creation.idle_s:
            return End(EndKind.IDLE, f"nobody used it for {creation.idle_s:g} s")
        return None

    def is_forgotten(self) -> bool:
        """Tell whether its end lies so far back that nobody asks any more."""
        return self.end is not None and self._clock() - self._ended >= FORGOTTEN_AFTER_S

    def facts(self) -> SandboxFacts:
        """Return what the hub is told."""
        sandbox = self.sandbox
        return SandboxFacts(
            sandbox_id=self.creation.sandbox_id,
            state=self.state,
            enforcement=WireEnforcement.of(self.enforcement) if self.enforcement is not None else None,
            started_at=self.started_at,
            ended_at=self.ended_at,
            end=WireEnd.of(self.end) if self.end is not None else None,
            start_command_exit_code=self.start_command_exit_code,
            memory_bytes=sandbox.memory_bytes() if sandbox is not None and self.end is None else None,
        )

    def egress_facts(self) -> EgressFacts:
        """Return what the hub is told of whom it may reach."""
        assert self.egress is not None
        return EgressFacts(
            policy=self.policy, generation=self.egress.generation, applied_generation=self.egress.applied_generation
        )

    async def follow_start_command(self) -> End | None:
        """Run the start command, if there is one, and log what it writes; return the end that its end means."""
        argv = argv_of(self.creation.start_command)
        if argv is None or self.sandbox is None:
            return None
        self._following = 1  # nobody uses a sandbox only because its start command writes
        try:
            session, follower = await self.sandbox.start_followed(Command(argv))
            with follower:
                async for event in follower:
                    if isinstance(event, Output):
                        self.log.write(event.data)
            ended = await session.wait()
        except SandboxError as error:
            self.log.write(f"the start command could not be started: {error.detail}\n".encode())
            ended = Ended(exit_code=127)
        finally:
            self._following = 0
        self.start_command_exit_code = ended.exit_code
        if self.creation.vm:
            return None
        kind = EndKind.OOM_KILLED if ended.oom_killed else EndKind.COMMAND_ENDED
        return End(kind, f"its start command ended with exit code {ended.exit_code}", ended.exit_code)
