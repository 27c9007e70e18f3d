"""Process 1: takes the node's requests, each on a channel, and ends with the node."""

from __future__ import annotations

import gc
import os
import sys

from . import frames, kernel
from .becoming import IGNORED
from .files import Reading, Writing, facts
from .frames import Malformed, json_frame, requested
from .jobs import Job, failed_frame, started_frame
from .loop import Loop, NodeGone
from .signals import signal
from .starting import Refused, Starter

# Most sandboxes run a command or two and end: what those do not need is imported when something needs it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from .snippets import Zygote
    from .starting import Pipes
    from .streams import Listener, Stream

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNHURRIED_S = 0.05  # after the start of a command that runs on


class Agent:
    """All that runs inside of one sandbox."""

    def __init__(self, loop: Loop, cgroup_fds: list[int], environment: dict[str, str]) -> None:
        self._loop = loop
        self._starter = Starter(loop, cgroup_fds)
        self._environment = environment
        self._made_zygote: Zygote | None = None
        self._channels: dict[int, Job | Reading | Writing | Stream] = {}
        self._jobs: dict[int, Job] = {}  # by process id
        self._listener: Listener | None = None
        self._handlers = {
            frames.START: self._start,
            frames.PYTHON: self._python,
            frames.STAT: self._stat,
            frames.READ: self._read,
            frames.WRITE: self._write,
            frames.CONNECT: self._connect,
            frames.LISTEN: self._listen,
        }

    def on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """Do what one frame asks for.

        Raises:
            Malformed: it makes no sense; the node is not what it should be.
        """
        handler = self._handlers.get(kind)
        try:
            if handler is not None:
                handler(channel, requested(payload))
            elif kind == frames.WARM:
                self._zygote().warm()
            elif kind == frames.PING:
                self._loop.send_frame(frames.REPLY, channel, b"{}")
            else:
                self._on_channel(kind, channel, payload)
        except Refused as refused:
            self._channels.pop(channel, None)
            self._loop.send(failed_frame(channel, refused))
        except KeyError as missing:
            raise Malformed(f"a request without {missing}") from None

    def _on_channel(self, kind: int, channel: int, payload: bytes) -> None:
        # What was sent before the other side had heard of the end finds nothing here.
        what = self._channels.get(channel)
        if what is None:
            return
        if kind == frames.INPUT and not isinstance(what, Reading):
            what.feed(payload)
        elif kind == frames.CREDIT and not isinstance(what, Writing):
            what.allow(frames.credit_of(payload))
        elif kind == frames.SIGNAL and isinstance(what, Job):
            what.signal(payload[0])
        elif kind == frames.CLOSE and not isinstance(what, Job):
            if isinstance(what, Reading | Writing):
                what.close()
            else:
                what.finish()
            self._channels.pop(channel, None)
        if isinstance(what, Writing) and what.is_over:
            self._channels.pop(channel, None)

    # Commands.

    def _start(self, channel: int, request: dict[str, Any]) -> None:
        self._starter.start(
            request,
            lambda pid, pipes, request: self._follow(channel, pid, pipes, request),
            lambda refused: self._loop.send(failed_frame(channel, refused)),
        )
        self._loop.after(_UNHURRIED_S, self._starter.prepare)

    def _python(self, channel: int, request: dict[str, Any]) -> None:
        zygote = self._zygote()

        def follow(pid: int, pipes: Pipes, request: dict[str, Any]) -> None:
            self._follow(channel, pid, pipes, request)
            self._jobs[pid].on_unreaped = zygote.end

        zygote.run(request, follow, lambda refused: self._loop.send(failed_frame(channel, refused)))

    def _zygote(self) -> Zygote:
        if self._made_zygote is None:
            from .snippets import Zygote

            self._made_zygote = Zygote(self._loop, self._starter, self._environment, self._end)
        return self._made_zygote

    def _follow(self, channel: int, pid: int, pipes: Pipes, request: dict[str, Any]) -> None:
        job = Job(self._loop, channel, pid, pipes, request)
        job.on_overrun = self._kill_everything
        self._channels[channel] = self._jobs[pid] = job
        self._loop.send(started_frame(channel, pid))

    def reap(self) -> None:
        """Take note of all children that ended, those that lost their parent among them."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._end(pid, status, (usage.ru_utime, usage.ru_stime, usage.ru_maxrss))

    def _end(self, pid: int, status: int, usage: Any) -> None:
        job = self._jobs.pop(pid, None)
        if job is not None:
            self._channels.pop(job.channel, None)
            job.finish(status, usage)
            # Not before: while a command starts, it should have the processor.
            self._loop.after(0, self._starter.prepare)
        else:
            self._starter.ended(pid, status)

    def _kill_everything(self, _job: Job) -> None:
        if os.getpid() == 1:
            kernel.kill_everything()

    # Files and connections.

    def _stat(self, channel: int, request: dict[str, Any]) -> None:
        self._loop.send(json_frame(frames.REPLY, channel, facts(request["path"])))

    def _read(self, channel: int, request: dict[str, Any]) -> None:
        reading = Reading(self._loop, channel, request)
        if not reading.is_over:
            self._channels[channel] = reading

    def _write(self, channel: int, request: dict[str, Any]) -> None:
        self._channels[channel] = Writing(self._loop, channel, request)

    def _connect(self, channel: int, request: dict[str, Any]) -> None:
        from .streams import Connecting

        Connecting(
            self._loop,
            channel,
            request["port"],
            self._carry,
            lambda channel, refused: self._loop.send(failed_frame(channel, refused)),
        )

    def _listen(self, channel: int, request: dict[str, Any]) -> None:
        from .streams import Listener

        if self._listener is None:
            self._listener = Listener(self._loop, request["port"], self._carry)
        self._loop.send(json_frame(frames.REPLY, channel, {"port": self._listener.port}))

    def _carry(self, channel: int, peer: socket.socket) -> None:
        from .streams import Stream

        self._channels[channel] = Stream(self._loop, channel, peer, self._forget)

    def _forget(self, channel: int) -> None:
        self._channels.pop(channel, None)
        if channel >= frames.FROM_INSIDE and self._listener is not None:
            self._listener.one_ended()


def main() -> None:
    """Serve the node on standard input and output until it is gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    cgroup_fds = [int(text) for text in "".join(sys.argv[1:2]).split(",") if text]
    read_fd, write_fd = _private_streams(cgroup_fds)
    kernel.be_unreadable()
    kernel.keep_orphans()  # as process 1 of a namespace does anyway
    loop = Loop(read_fd, write_fd)
    environment = dict(os.environ)
    environment.setdefault("PATH", _PATH)
    os.environ.clear()
    gc.freeze()  # a fork copies each page that a collection touches
    agent = Agent(loop, cgroup_fds, environment)
    loop.send(json_frame(frames.HELLO, 0, {"pid": os.getpid(), "python": sys.version.split()[0]}))
    try:
        loop.run(agent.on_frame, agent.reap)
    except NodeGone:
        code = 0
    except Malformed as error:
        code = _last_words(loop, repr(error))
    except Exception:  # noqa: BLE001  told to the node, for here nobody reads it
        import traceback

        code = _last_words(loop, traceback.format_exc(limit=-4))
    _leave_nothing()
    os._exit(code)


def _last_words(loop: Loop, text: str) -> int:
    try:
        loop.send(json_frame(frames.FAILED, 0, {"kind": "broken", "message": text}))
    except NodeGone:
        pass
    return 1


def _private_streams(keep: list[int]) -> tuple[int, int]:
    """Return the two ends towards the node, moved away from where commands have theirs; close whatever else is open."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    wanted = {0, 1, 2, read_fd, write_fd, *keep}
    for fd in range(3, max(wanted) + 64):
        if fd not in wanted:
            try:
                os.close(fd)
            except OSError:
                continue
    for fd in wanted - {0, 1, 2}:
        os.set_inheritable(fd, False)
    return read_fd, write_fd


def _leave_nothing() -> None:
    """Kill what still runs; of process 1 the kernel does so anyway, and at once."""
    if os.getpid() != 1:
        for pid in kernel.below(os.getpid()):
            kernel.kill(pid, signal.SIGKILL)
