"""A live sandbox, as the gateway and the pools see it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar

from hub_server.sandbox_node.agent.inside import frames
from hub_server.sandbox_node.backends import Confined
from hub_server.sandbox_node.collected import collect
from hub_server.sandbox_node.connections import Stream
from hub_server.sandbox_node.errors import FileRefused, Gone, NoSession, NotStarted, SessionTaken
from hub_server.sandbox_node.link import GONE, AgentLink, Channel, Frame, decoded
from hub_server.sandbox_node.sessions import Follower, Session, failure_of
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, Ended, EndKind, Finished

MOST_OUTPUT = 10 * MEBIBYTE  # of each stream of a command whose output is collected
MOST_FILE = 2 * 1024 * MEBIBYTE
# For so long a command that ended is found by its name, and its end is told again.
RETENTION_S = 300.0
T = TypeVar("T")
_WARM_WITHIN_S = 10.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class FileFacts:
    """What lies at a path."""

    size: int
    kind: Literal["file", "directory", "other"]
    mode: int
    modified: float  # seconds since 1970


def warm(link: AgentLink) -> None:
    """Let a new sandbox do once what takes longest the first time: a shell is started, and the Python for snippets."""
    channel = link.open()
    channel.ask(frames.START, argv=["/bin/bash", "-c", ":"], env={"PATH": _PATH}, timeout_s=_WARM_WITHIN_S)
    channel.close()  # nobody wants to know how it ended
    link.send(frames.frame(frames.WARM, 0))


class Sandbox:
    """One sandbox from the moment it is taken to its end. Every method raises Gone once it has ended."""

    def __init__(self, sandbox_id: str, image: str, confined: Confined, environment: Mapping[str, str]) -> None:
        self.id, self.image = sandbox_id, image
        self.enforcement = confined.enforcement
        self.environment: dict[str, str] = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", **environment}
        self.working_dir = "/"
        self.end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.last_used = time.monotonic()
        self.exposed: set[int] = set()
        self._in_use = 0
        self._confined, self._link = confined, confined.link
        self._sessions: dict[int, Session] = {}
        self._named: dict[str, Session] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._link.closed.add_done_callback(self._agent_gone)

    # Whether it lives, and is used.

    @property
    def attached(self) -> int:
        """Return how many operations and readers of commands there are now."""
        return self._in_use + sum(session.attached for session in self._sessions.values())

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """Count as used meanwhile, and be alive to begin with.

        Raises:
            Gone: it has ended.
        """
        self._check()
        self._in_use += 1
        self.last_used = time.monotonic()
        try:
            yield
        finally:
            self._in_use -= 1
            self.last_used = time.monotonic()

    def memory_bytes(self) -> int | None:
        """Return what it holds now; None where the host does not count."""
        return self._confined.memory_bytes()

    async def destroy(self, end: End) -> None:
        """End all that runs in it and remove every trace."""
        if not self.end.done():
            self.end.set_result(end)
        await self._confined.destroy()

    async def is_alive(self, timeout_s: float = 5.0) -> bool:
        """Return whether its agent answers."""
        channel = self._link.open()
        channel.send(frames.PING)
        try:
            async with asyncio.timeout(timeout_s):
                return (await channel.receive()).kind == frames.REPLY
        except TimeoutError:
            return False
        finally:
            channel.close()

    def _check(self) -> None:
        if self.end.done():
            raise Gone(self.end.result())

    def _agent_gone(self, _: object) -> None:
        if not self.end.done():
            self._spawn(self._explain_end())

    async def _explain_end(self) -> None:
        why = await self._confined.why_ended()
        said = f": {self._link.last_words}" if self._link.last_words else ""
        await self.destroy(why or End(EndKind.FAILED, f"its first process ended{said}"))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _raise_gone(self) -> NoReturn:
        """Say why it ended, once that is known."""
        raise Gone(await self.end)

    # Commands.

    async def start(self, command: Command, session_uuid: str | None = None) -> Session:
        """Start a command, or return the session of this name, which runs or ended a while ago.

        Raises:
            NotStarted: it could not be started.
            SessionTaken: the name belongs to another command.
        """
        session, follower = await self.start_followed(command, session_uuid)
        follower.leave()
        return session

    async def start_followed(self, command: Command, session_uuid: str | None = None) -> tuple[Session, Follower]:
        """Return the session together with a follower that misses nothing of what a new command writes."""
        with self.using():
            if session_uuid is None:
                return await self._start(command)
            return await self._outliving(self._start_or_attach(command, session_uuid))

    async def _start_or_attach(self, command: Command, uuid: str) -> tuple[Session, Follower]:
        async with self._starting.setdefault(uuid, asyncio.Lock()):
            known = self._named.get(uuid)
            if known is None:
                return await self._start(command, uuid)
            if replace(known.command, timeout_s=command.timeout_s) != command:  # its time may be asked for anew
                raise SessionTaken(f"session {uuid} runs another command")
            return known, known.follow()

    async def _outliving(self, start: Coroutine[Any, Any, tuple[Session, Follower]]) -> tuple[Session, Follower]:
        """Bring a start to its end although its caller gives up: a command that nobody knows of could not be ended."""
        starting = self._spawn(start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._abandon)
            raise

    def _abandon(self, starting: asyncio.Task[tuple[Session, Follower]]) -> None:
        if starting.cancelled() or starting.exception() is not None:
            return
        session, follower = starting.result()
        follower.leave()
        if session.uuid is None:
            self._spawn(session.signal(signal.SIGKILL))

    async def _start(
        self,
        command: Command,
        uuid: str | None = None,
        *,
        most_output: int | None = None,
        memory_bytes: int | None = None,
    ) -> tuple[Session, Follower]:
        request = {**self._request(command, most_output), "argv": list(command.argv), "memory_bytes": memory_bytes}
        return await self._run_on_channel(frames.START, request, command, uuid)

    def _request(self, command: Command, most_output: int | None) -> dict[str, Any]:
        return {
            "cwd": command.cwd or self.working_dir,
            "env": {**self.environment, **command.env},
            "user": command.user,
            "timeout_s": command.timeout_s,
            "stdin": command.stdin,
            "most_output": most_output,
        }

    async def _run_on_channel(
        self, kind: int, request: dict[str, Any], command: Command, uuid: str | None
    ) -> tuple[Session, Follower]:
        return await self._outliving(self._begin(kind, request, command, uuid))

    async def _begin(
        self, kind: int, request: dict[str, Any], command: Command, uuid: str | None
    ) -> tuple[Session, Follower]:
        channel = self._link.open()
        channel.ask(kind, **request)
        session = Session(channel, command, uuid)
        kills_before = self._confined.oom_kills()
        try:
            await session.started()
        except NotStarted:
            if self._link.closed.done():
                await self._raise_gone()
            raise
        follower = session.follow()
        self._sessions[session.pid] = session
        if uuid is not None:
            self._named[uuid] = session

        def judge(ended: Ended) -> Ended:
            killed = ended.signal == signal.SIGKILL or ended.exit_code == 128 + signal.SIGKILL
            if killed and not ended.timed_out and not ended.cut:
                now = self._confined.oom_kills()
                return replace(ended, oom_killed=now is not None and now > (kills_before or 0))
            return ended

        session.pump(judge, lambda: self._retire(session))
        return session, follower

    def _retire(self, session: Session) -> None:
        self.last_used = time.monotonic()
        keep_s = RETENTION_S if session.uuid is not None else 0.0
        asyncio.get_running_loop().call_later(keep_s, self._forget, session)

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.pid) is session:
            del self._sessions[session.pid]
        if session.uuid is not None and self._named.get(session.uuid) is session:
            del self._named[session.uuid]
            self._starting.pop(session.uuid, None)

    def session(self, *, pid: int | None = None, uuid: str | None = None) -> Session:
        """Return a session that runs, or that had a name and ended a while ago.

        Raises:
            NoSession: there is none.
        """
        self._check()
        found = self._named.get(uuid) if uuid is not None else self._sessions.get(pid or 0)
        if found is None:
            raise NoSession(f"no command with {'session ' + uuid if uuid is not None else f'process id {pid}'}")
        return found

    def sessions(self) -> list[Session]:
        """Return those that run."""
        self._check()
        return [session for session in self._sessions.values() if session.ended is None]

    async def run(
        self,
        command: Command,
        *,
        stdin: bytes = b"",
        memory_bytes: int | None = None,
        most_output: int = MOST_OUTPUT,
    ) -> Finished:
        """Run a command to its end and return what it wrote, at most `most_output` bytes of each stream.

        `memory_bytes` is what each process of it may have of its own.

        Raises:
            NotStarted: it could not be started.
        """
        command = replace(command, stdin=command.stdin or bool(stdin))
        with self.using():
            session, follower = await self._start(command, most_output=most_output, memory_bytes=memory_bytes)
            return await self._collect(session, follower, stdin)

    async def run_python(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        memory_bytes: int | None = None,
        most_output: int = MOST_OUTPUT,
    ) -> Finished:
        """Run a snippet in a fork of a Python that has started already.

        Raises:
            NotPossible: the image has no Python.
            NotStarted: there can be no more processes.
        """
        command = Command(["python3"], cwd=cwd, env=env or {}, timeout_s=timeout_s, stdin=bool(stdin))
        with self.using():
            request = {**self._request(command, most_output), "code": code, "memory_bytes": memory_bytes}
            session, follower = await self._run_on_channel(frames.PYTHON, request, command, None)
            return await self._collect(session, follower, stdin)

    async def _collect(self, session: Session, follower: Follower, stdin: bytes) -> Finished:
        finished = await collect(session, follower, stdin)
        if session.lost:
            await self._raise_gone()
        return finished

    # Files.

    async def stat(self, path: str) -> FileFacts:
        """Return what lies at a path.

        Raises:
            FileRefused: nothing, or it may not be looked at.
        """
        with self.using():
            said = await self._ask(frames.STAT, {"path": path})
            return FileFacts(said["size"], said["kind"], said["mode"], said["modified"])

    async def write_file(
        self, path: str, chunks: AsyncIterable[bytes], *, mode: int = 0o644, most_bytes: int = MOST_FILE
    ) -> int:
        """Write a file and its folders, and return its size. Nobody inside sees half of it.

        Raises:
            FileRefused: it is larger than `most_bytes`, there is no room, or it may not be written.
        """
        with self.using():
            channel = self._link.open()
            channel.ask(frames.WRITE, path=path, mode=mode, most_bytes=most_bytes)
            try:
                async for chunk in chunks:
                    if channel.has_more:  # a refusal: the rest need not come
                        break
                    if chunk:
                        await channel.send_bytes(chunk)
                else:
                    channel.send_end()
                said = await self._answer(channel)
                return int(said["size"])
            finally:
                channel.send(frames.CLOSE)
                channel.close()

    async def read_file(self, path: str, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield a file's content from `offset` (from its end where negative), at most `length` bytes.

        Raises:
            FileRefused: there is no such file, or it may not be read.
        """
        _, content = await self.open_file(path, offset, length)
        async for chunk in content:
            yield chunk

    async def open_file(
        self, path: str, offset: int = 0, length: int | None = None
    ) -> tuple[dict[str, int], AsyncGenerator[bytes, None]]:
        """Return the file's size and the offset that reading begins at ({size, offset}), and its content.

        Raises:
            FileRefused: there is no such file, or it may not be read.
        """
        self._check()
        channel = self._link.open()
        channel.ask(frames.READ, path=path, offset=offset, length=length)
        try:
            facts = await self._answer(channel)
        except BaseException:
            channel.close()
            raise
        return facts, self._content(channel)

    async def _content(self, channel: Channel) -> AsyncGenerator[bytes, None]:
        try:
            with self.using():
                while True:
                    frame = await channel.receive()
                    if frame.kind == frames.DATA:
                        yield frame.payload
                    elif frame.kind == frames.END_OF_DATA:
                        return
                    else:
                        await self._raise_gone()
        finally:
            channel.send(frames.CLOSE)
            channel.close()

    # Connections.

    async def connect(self, port: int) -> Stream:
        """Connect to a port of the sandbox's own loopback.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        with self.using():
            channel = self._link.open()
            channel.ask(frames.CONNECT, port=port)
            frame = await channel.receive()
            if frame.kind == frames.STARTED:
                return Stream(channel)
            channel.close()
            if frame.kind == GONE:
                await self._raise_gone()
            raise ConnectionRefusedError(str(failure_of(frame)))

    async def offer_proxy(self, port: int, on_connection: Callable[[Stream], Coroutine[Any, Any, None]]) -> int:
        """Let programs inside reach the node on a port of their loopback; each connection is given to `on_connection`.

        Returns:
            The port, which is another one where the one that was asked for is taken inside.

        Raises:
            NotStarted: nobody can listen there.
        """
        with self.using():

            def accept(channel: Channel) -> None:
                self._spawn(on_connection(Stream(channel)))

            self._link.on_connection = accept
            channel = self._link.open()
            channel.ask(frames.LISTEN, port=port)
            frame = await channel.receive()
            channel.close()
            if frame.kind == GONE:
                await self._raise_gone()
            if frame.kind != frames.REPLY:
                raise failure_of(frame)
            return int(decoded(frame.payload)["port"])

    # One question, one answer.

    async def _ask(self, kind: int, request: dict[str, Any]) -> dict[str, Any]:
        channel = self._link.open()
        channel.ask(kind, **request)
        try:
            return await self._answer(channel)
        finally:
            channel.close()

    async def _answer(self, channel: Channel) -> dict[str, Any]:
        frame: Frame = await channel.receive()
        if frame.kind == GONE:
            await self._raise_gone()
        said = decoded(frame.payload)
        if frame.kind == frames.REPLY:
            return said
        raise FileRefused(said["kind"], said["message"])
