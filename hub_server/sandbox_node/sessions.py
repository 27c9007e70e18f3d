"""Commands that run in a sandbox: followed by any number of readers, found again by name or process id."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal

from hub_server.sandbox_node.agent.inside import frames
from hub_server.sandbox_node.errors import NotPossible, NotStarted, SandboxError
from hub_server.sandbox_node.link import GONE, Channel, Frame, decoded
from hub_server.sandbox_node.specification import MEBIBYTE, Command, Ended

_KILLED = 128 + signal.SIGKILL
_LOST_EXIT_CODE = _KILLED
# What reading an answer raises that is none: whoever gave it is not our agent any more.
_NONSENSE = (frames.Malformed, KeyError, TypeError, ValueError)
_REMEMBERED_TOKENS = 1024
_PATIENCE_S = 10.0
_MOST_UNREAD_INPUT = 64 * MEBIBYTE


@dataclass(frozen=True)
class Output:
    """Some bytes that a command wrote."""

    stream: Literal["stdout", "stderr"]
    data: bytes


class Session:
    """One command. Its output goes to whoever follows it; while nobody does, it is read and dropped."""

    def __init__(self, channel: Channel, command: Command, uuid: str | None) -> None:
        self._channel, self.command, self.uuid = channel, command, uuid
        self.pid = 0
        self.ended: Ended | None = None
        self.ended_at: float | None = None  # monotonic, seconds
        self.lost = False  # the sandbox ended before the command did
        self._followers: set[_Follower] = set()
        self._done_tokens: deque[str] = deque(maxlen=_REMEMBERED_TOKENS)
        self._pump: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._inputs: dict[object, asyncio.Task[None]] = {}
        self._unread_input = 0
        self._send_lock = asyncio.Lock()
        self._input_is_open = command.stdin

    async def started(self) -> None:
        """Return when the agent has started the command.

        Raises:
            NotStarted: it could not, as when there are no more processes.
            NotPossible: the image has no Python that snippets could run in.
        """
        frame = await self._channel.receive()
        if frame.kind == frames.STARTED:
            try:
                self.pid = int(decoded(frame.payload)["pid"])
            except _NONSENSE:
                self._channel.link.close()
                raise NotStarted("the agent made no sense") from None
            return
        self._channel.close()
        raise failure_of(frame)

    def pump(self, judge: Callable[[Ended], Ended], on_end: Callable[[], None]) -> None:
        """Read the command's output from now on; `judge` may add to how it ended, `on_end` is called after."""
        self._pump = asyncio.get_running_loop().create_task(self._read(judge, on_end))

    def follow(self) -> Follower:
        """Return a reader of what comes from now on. Register it before `pump` to miss nothing."""
        follower = _Follower(self)
        if self.ended is None:
            self._followers.add(follower)
        else:
            follower.put(self.ended)
        return follower

    async def events(self) -> AsyncIterator[Output | Ended]:
        """Yield output from now on, then how the command ended."""
        with self.follow() as follower:
            async for event in follower:
                yield event

    @property
    def attached(self) -> int:
        """Return how many follow it now."""
        return len(self._followers)

    async def wait(self) -> Ended:
        """Return how the command ended, once it has."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    async def write(self, data: bytes, uuid: str | None = None) -> None:
        """Send input, and return when the command takes it or has ended.

        The same `uuid` again is the same input, sent again because an answer got lost or came late: it is sent once.

        Raises:
            NotPossible: much was sent before that the command has not read.
        """
        if self.ended is not None or not self._input_is_open:
            return
        sending = self._inputs.get(uuid) if uuid is not None else None
        if sending is None:
            if self._unread_input > _MOST_UNREAD_INPUT:
                raise NotPossible(f"the command has left {self._unread_input // MEBIBYTE} MiB of its input unread")
            sending = asyncio.get_running_loop().create_task(self._send(data))
            self._inputs[uuid if uuid is not None else object()] = sending
            while len(self._inputs) > _REMEMBERED_TOKENS and next(iter(self._inputs.values())).done():
                del self._inputs[next(iter(self._inputs))]
        # Who waits may give up; what was begun is sent all the same, so that no input is cut in two.
        await asyncio.wait([sending])

    async def _send(self, data: bytes) -> None:
        self._unread_input += len(data)
        try:
            async with self._send_lock:
                await self._channel.send_bytes(data)
        finally:
            self._unread_input -= len(data)

    async def close_input(self) -> None:
        """Say that no more input will come."""
        if self.ended is None and self._input_is_open:
            async with self._send_lock:
                self._input_is_open = False
                self._channel.send_end()

    async def signal(self, number: int, uuid: str | None = None) -> None:
        """Send a signal to the command's group; SIGKILL ends all that it started."""
        if self.ended is None and self._is_new(uuid):
            self._channel.send(frames.SIGNAL, bytes([number]))

    def _is_new(self, uuid: str | None) -> bool:
        if uuid is None:
            return True
        if uuid in self._done_tokens:
            return False
        self._done_tokens.append(uuid)
        return True

    async def _read(self, judge: Callable[[Ended], Ended], on_end: Callable[[], None]) -> None:
        while self.ended is None:
            frame = await self._channel.receive()
            if frame.kind in (frames.STDOUT, frames.STDERR):
                output = Output("stdout" if frame.kind == frames.STDOUT else "stderr", frame.payload)
                # The slowest reader sets the pace, so that none loses anything and nothing piles up; but no longer
                # than that, if others wait.
                for follower in list(self._followers):
                    if await follower.room(_PATIENCE_S):
                        follower.put(output)
                    else:
                        follower.drop()
            elif frame.kind == frames.ENDED:
                try:
                    ended = _ended(decoded(frame.payload))
                except _NONSENSE:
                    self._channel.link.close()  # the next frame is that it is gone
                else:
                    self._settle(judge(ended))
            elif frame.kind == GONE:
                self.lost = True
                self._settle(judge(Ended(_LOST_EXIT_CODE, signal=signal.SIGKILL)))
        on_end()

    def _settle(self, ended: Ended) -> None:
        self.ended, self.ended_at = ended, time.monotonic()
        self._channel.close()
        self._over.set()
        for sending in self._inputs.values():
            sending.cancel()
        for follower in list(self._followers):
            follower.put(ended)

    def leave(self, follower: _Follower) -> None:
        """Send nothing more to a reader."""
        self._followers.discard(follower)


class _Follower:
    """A bounded queue of what a session says; use as a context manager, iterate to the end."""

    _MOST = 64

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events: deque[Output | Ended] = deque()
        self._filled, self._emptied = asyncio.Event(), asyncio.Event()
        self._left = self._is_dropped = False

    def put(self, event: Output | Ended) -> None:
        """Take one event."""
        self._events.append(event)
        self._filled.set()

    async def room(self, patience_s: float) -> bool:
        """Return when there is room for one more, or the reader has left; False where it holds up other readers.

        A connection that broke unseen reads nothing: who attached again must not wait for it.
        """
        while len(self._events) >= self._MOST and not self._left:
            self._emptied.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._emptied.wait()
            except TimeoutError:
                if self._session.attached > 1:
                    return False
        return True

    def drop(self) -> None:
        """Let go of a reader that does not read; it gets what it has, and an error after that."""
        self._is_dropped = True
        self._filled.set()
        self._session.leave(self)

    @property
    def has_more(self) -> bool:
        """Whether the next event is there already."""
        return bool(self._events)

    async def next(self) -> Output | Ended:
        """Return the next event; the last one is an Ended.

        Raises:
            SandboxError: it was dropped.
        """
        while not self._events:
            if self._is_dropped:
                raise SandboxError("another reader of this command was quicker; attach again to go on")
            self._filled.clear()
            await self._filled.wait()
        event = self._events.popleft()
        self._emptied.set()
        return event

    async def __aiter__(self) -> AsyncIterator[Output | Ended]:
        while True:
            event = await self.next()
            yield event
            if isinstance(event, Ended):
                return

    def __enter__(self) -> _Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Take nothing more, and hold nothing up."""
        self._left = True
        self._emptied.set()
        self._session.leave(self)


Follower = _Follower


def failure_of(frame: Frame) -> SandboxError:
    """Return the error that stands for an agent's refusal to start something."""
    if frame.kind == GONE:
        return NotStarted("the sandbox ended")
    with contextlib.suppress(frames.Malformed, KeyError):
        said: dict[str, Any] = decoded(frame.payload)
        if said["kind"] == "no_python":
            return NotPossible(str(said["message"]), "use an image with python3")
        return NotStarted(str(said["message"]))
    return NotStarted("the agent made no sense")


def _ended(said: dict[str, Any]) -> Ended:
    return Ended(
        exit_code=int(said["exit_code"]),
        signal=said["signal"],
        timed_out=bool(said["timed_out"]),
        cut=bool(said["cut"]),
        cpu_s=float(said["cpu_s"]),
        wall_s=float(said["wall_s"]),
        peak_memory_bytes=int(said["peak_memory_bytes"]),
    )
