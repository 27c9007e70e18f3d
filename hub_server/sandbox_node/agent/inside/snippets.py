"""Python snippets, run by forks of a zygote that this keeps; see zygote.py for what runs there."""

from __future__ import annotations

import _socket
import os
import select
import struct

from . import kernel
from .frames import as_json
from .loop import Loop
from .signals import signal
from .starting import Pipes, Refused, Starter

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .starting import OnFailed, OnStarted

    OnEnded = Callable[[int, int, Any], None]

_ZYGOTE = os.path.join(os.path.dirname(__file__), "zygote.py")
# The image's own Python, with the packages of the image; isolated, so that no file of an earlier command is imported.
_COMMAND = ("python3", "-I", "-B", _ZYGOTE)
_STARTS_WITHIN_S, _ANSWERS_WITHIN_S = 30.0, 5.0
_UNHURRIED_S = 0.05  # after the start of a snippet that runs on
# What it says; zygote.py has the same.
_READY, _FORKED, _FAILED, _ENDED = b"rkfe"
_SAID = struct.Struct("=Biiddq")  # kind, process id, status or errno, seconds as user and in the kernel, KiB at most
_DESCRIPTORS = struct.Struct("=4i")  # of a fork: by which it gets its snippet, stdin, stdout, stderr
_DESCRIPTOR = struct.Struct("=i")
_MOST_IN_MESSAGE = 60_000  # bytes; more than that is handed over as a file


class Spare:
    """A fork that waits for its snippet, or will: its streams, and where the snippet is sent."""

    def __init__(self, link: _socket.socket, pipes: Pipes) -> None:
        self.link, self.pipes = link, pipes
        self.pid: int | None = None

    def take(self, request: dict[str, Any]) -> bool:
        """Let it run a snippet; False where it is gone, and nothing was run.

        Raises:
            OSError: there is no room for a long one.
        """
        head = {key: request.get(key) for key in ("env", "cwd", "memory_bytes")}
        told = as_json(head) + b"\n" + request["code"].encode("utf-8", "surrogatepass")
        if len(told) <= _MOST_IN_MESSAGE:
            message, ancillary, file = told, [], None
        else:
            message, file = b"\n", _file_of(told)
            ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _DESCRIPTOR.pack(file))]
        assert self.pid is not None
        kernel.kill(self.pid, signal.SIGCONT)  # an earlier command may have stopped it, which has the same user
        try:
            self.link.sendmsg([message], ancillary)
        except OSError:
            return False
        finally:
            if file is not None:
                os.close(file)
        self.link.close()
        if not request.get("stdin"):
            self.pipes.close_input()
        return True

    def discard(self) -> None:
        """Let it end."""
        self.link.close()
        self.pipes.close_outer()


class Zygote:
    """One Python process that forks for snippets; a new one is started when it has died."""

    def __init__(self, loop: Loop, starter: Starter, environment: dict[str, str], on_ended: OnEnded) -> None:
        self._loop, self._starter, self._environment, self._on_ended = loop, starter, environment, on_ended
        self._link: _socket.socket | None = None
        self._is_ready = False
        self._waiting: list[tuple[dict[str, Any], OnStarted, OnFailed]] = []
        self._spare: Spare | None = None
        self._asked: list[Spare] = []  # those that it has not forked yet, in order
        self._errors: Pipes | None = None
        self._timer: Any = None
        self.pid: int | None = None

    def warm(self) -> None:
        """Start it now, for it takes longer than a snippet may."""
        if self._link is not None:
            return
        try:
            pipes = Pipes(with_input=False)
        except OSError as error:
            raise _no_process(error.strerror) from None
        try:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        except OSError as error:
            pipes.close_inner()
            pipes.close_outer()
            raise _no_process(error.strerror) from None
        try:
            self.pid = self._starter.start_helper({"argv": _COMMAND, "env": self._environment}, pipes, theirs.fileno())
        except Refused:
            ours.close()
            pipes.close_outer()
            raise
        finally:
            pipes.close_inner()
            theirs.close()
        ours.setblocking(False)
        self._link, self._errors, self._is_ready = ours, pipes, False
        self._loop.watch(ours.fileno(), select.EPOLLIN, self._hear)
        self._timer = self._loop.after(_STARTS_WITHIN_S, self.end)

    def run(self, request: dict[str, Any], on_started: OnStarted, on_failed: OnFailed) -> None:
        """Run a snippet, now or as soon as there is a fork for it."""
        self._waiting.append((request, on_started, on_failed))
        try:
            self.warm()
        except Refused as refused:
            self._fail_all(refused)
            return
        self._go_on()
        self._loop.after(_UNHURRIED_S, self._prepare)

    def _prepare(self) -> None:
        """Have a fork for the next snippet, in a sandbox that has run one."""
        if self._is_ready and self._spare is None and not self._asked:
            self._ask()

    def _go_on(self) -> None:
        """Hand over what waits, and ask for as many forks as the rest needs."""
        while self._waiting and self._spare is not None:
            spare, self._spare = self._spare, None
            self._hand_over(spare, *self._waiting.pop(0))
        while self._is_ready and len(self._asked) < len(self._waiting) and self._ask():
            pass

    def _ask(self) -> bool:
        """Ask for a fork; False where that is not possible now."""
        assert self._link is not None
        try:
            pipes = Pipes(with_input=True)
        except OSError as error:
            self._fail_all(_no_process(error.strerror))
            return False
        link = theirs = None
        try:
            link, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            descriptors = _DESCRIPTORS.pack(theirs.fileno(), pipes.stdin, pipes.stdout, pipes.stderr)
            self._link.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        except BlockingIOError:
            pass  # so many were asked for already; this one will be when they have come
        except OSError as error:
            if link is None:
                self._fail_all(_no_process(error.strerror))
            else:
                self._lose()
        else:
            if not self._asked:
                self._timer = self._loop.after(_ANSWERS_WITHIN_S, self.end)
            self._asked.append(Spare(link, pipes))
            return True
        finally:
            pipes.close_inner()
            if theirs is not None:
                theirs.close()
        if link is not None:
            link.close()
        pipes.close_outer()
        return False

    def _hand_over(self, spare: Spare, request: dict[str, Any], on_started: OnStarted, on_failed: OnFailed) -> None:
        assert spare.pid is not None
        try:
            if spare.take(request):
                on_started(spare.pid, spare.pipes, request)
                return
            self._waiting.insert(0, (request, on_started, on_failed))  # it was killed while it waited
        except OSError as error:
            on_failed(_no_process(error.strerror))
        spare.discard()

    def _hear(self, _events: int) -> None:
        while self._link is not None:
            try:
                data = self._link.recv(_SAID.size)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
            else:
                self._take(*_SAID.unpack(data))

    def _take(self, kind: int, pid: int, status: int, *usage: Any) -> None:
        if kind == _READY:
            self._loop.cancel(self._timer)
            self._is_ready = True
        elif kind == _ENDED:
            if self._spare is not None and self._spare.pid == pid:
                self._drop_spare()
            else:
                self._on_ended(pid, status, usage)
                # Not before: while a snippet runs, it should have the processor.
                self._loop.after(0, self._prepare)
        elif kind == _FORKED:
            self._drop_spare()
            self._spare = self._answered()
            self._spare.pid = pid
        elif kind == _FAILED:
            self._answered().discard()
            if self._waiting:
                self._waiting.pop(0)[2](_no_process(os.strerror(status)))
        self._go_on()

    def _answered(self) -> Spare:
        self._loop.cancel(self._timer)
        spare = self._asked.pop(0)
        if self._asked:
            self._timer = self._loop.after(_ANSWERS_WITHIN_S, self.end)
        return spare

    def end(self, _job: object = None) -> None:
        """End a zygote that does not start, fork or reap; a command may have stopped it, which has the same user."""
        if self.pid is not None:
            kernel.kill(self.pid, signal.SIGKILL)
        self._lose()

    def _lose(self) -> None:
        """Forget a zygote that died; what waits for it fails, and the next snippet starts another."""
        if self._link is None:
            return
        link, self._link = self._link, None
        self._loop.cancel(self._timer)
        self._loop.forget(link.fileno())
        for pid, status, *usage in _ends_told(link):  # which nobody else will tell
            self._on_ended(pid, status, usage)
        link.close()
        self._drop_spare()
        while self._asked:
            self._asked.pop().discard()
        said = self._last_words()
        self._is_ready, self.pid = False, None
        self._fail_all(Refused("no_python", said))

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.discard()
            self._spare = None

    def _last_words(self) -> str:
        assert self._errors is not None
        try:
            text = os.read(self._errors.error_fd, 4096).decode(errors="replace").strip()
        except OSError:
            text = ""
        self._errors.close_outer()
        if not self._is_ready:
            return f"the image has no Python that starts: {text or 'it ended without a word'}"
        return "the Python that runs snippets was killed"

    def _fail_all(self, refused: Refused) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, on_failed in waiting:
            on_failed(refused)


def _no_process(reason: str | None) -> Refused:
    return Refused("no_process", f"no snippet can be started: {reason}")


def _ends_told(link: _socket.socket) -> list[tuple[Any, ...]]:
    """Return what a zygote said of the ends of snippets before it ended itself."""
    told = []
    try:
        while data := link.recv(_SAID.size):
            kind, *ended = _SAID.unpack(data)
            if kind == _ENDED:
                told.append(tuple(ended))
    except OSError:
        pass
    return told


def _file_of(content: bytes) -> int:
    """Return a descriptor of a file without name."""
    fd = os.memfd_create("snippet", os.MFD_CLOEXEC)
    try:
        data = memoryview(content)
        while data:
            data = data[os.write(fd, data) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd
