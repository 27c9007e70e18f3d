"""Python snippets, run by forks of a zygote that this keeps; see zygote.py for what runs there."""

from __future__ import annotations

import array
import collections
import json
import os
import select
import socket
from collections.abc import Callable

from . import kernel
from .loop import Loop
from .starting import Pipes, Refused, Starter

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from typing import Any

    OnStarted = Callable[[int, Pipes, dict[str, Any]], None]
    OnFailed = Callable[[Refused], None]
    OnEnded = Callable[[int, int, Any], None]

_ZYGOTE = os.path.join(os.path.dirname(__file__), "zygote.py")
# The image's own Python, with the packages of the image; isolated, so that no file of an earlier command is imported.
_COMMAND = ("python3", "-I", "-B", _ZYGOTE)
_STARTS_WITHIN_S = 30.0


class Zygote:
    """One Python process that waits for snippets; a new one is started when it has died."""

    def __init__(self, loop: Loop, starter: Starter, environment: dict[str, str], on_ended: OnEnded) -> None:
        self._loop, self._starter, self._environment, self._on_ended = loop, starter, environment, on_ended
        self._link: socket.socket | None = None
        self._is_ready = False
        self._waiting: collections.deque[tuple[dict[str, Any], OnStarted, OnFailed]] = collections.deque()
        self._asked: dict[int, tuple[dict[str, Any], Pipes, OnStarted, OnFailed]] = {}
        self._next = 0
        self._errors: Pipes | None = None
        self._timer: Any = None
        self.pid: int | None = None

    def warm(self) -> None:
        """Start it now, for it takes longer than a snippet may."""
        if self._link is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = Pipes(with_input=False)
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
        self._timer = self._loop.after(_STARTS_WITHIN_S, self._give_up)

    def run(self, request: dict[str, Any], on_started: OnStarted, on_failed: OnFailed) -> None:
        """Run a snippet, now or as soon as the zygote can."""
        self._waiting.append((request, on_started, on_failed))
        try:
            self.warm()
        except Refused as refused:
            self._fail_all(refused)
            return
        if self._is_ready:
            self._ask()

    def _ask(self) -> None:
        assert self._link is not None
        while self._waiting:
            request, on_started, on_failed = self._waiting.popleft()
            try:
                code_fd = self._written(request)
                pipes = Pipes(with_input=bool(request.get("stdin")))
            except OSError as error:
                on_failed(Refused("no_process", f"no snippet can be started: {error.strerror}"))
                continue
            self._next += 1
            descriptors = array.array("i", [code_fd, pipes.stdin, pipes.stdout, pipes.stderr])
            self._asked[self._next] = (request, pipes, on_started, on_failed)
            try:
                # Settles within the socket's buffer: one request is some ten bytes.
                self._link.sendmsg(
                    [json.dumps({"id": self._next}).encode()],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
                )
            except OSError:
                self._lose()
                return
            finally:
                os.close(code_fd)
                pipes.close_inner()

    @staticmethod
    def _written(request: dict[str, Any]) -> int:
        """Return a descriptor of a file without name that holds what the child is to read."""
        fd = os.memfd_create("snippet", os.MFD_CLOEXEC)
        head = {key: request.get(key) for key in ("env", "cwd", "memory_bytes")}
        data = memoryview(json.dumps(head).encode() + b"\n" + request["code"].encode("utf-8", "surrogatepass"))
        while data:
            data = data[os.write(fd, data) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _hear(self, _events: int) -> None:
        assert self._link is not None
        while self._link is not None:
            try:
                data = self._link.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            self._take(json.loads(data))

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._loop.cancel(self._timer)
            self._is_ready = True
            self._ask()
        elif "ended" in message:
            self._on_ended(message["ended"], message["status"], message["usage"])
        else:
            request, pipes, on_started, on_failed = self._asked.pop(message["id"])
            if "pid" in message:
                on_started(message["pid"], pipes, request)
            else:
                pipes.close_outer()
                on_failed(Refused("no_process", f"no snippet can be started: {message['failed']}"))

    def _give_up(self) -> None:
        if self.pid is not None:
            kernel.kill_tree(self.pid)
        self._lose()

    def _lose(self) -> None:
        """Forget a zygote that died; what waits for it fails, and the next snippet starts another."""
        if self._link is None:
            return
        self._loop.cancel(self._timer)
        self._loop.forget(self._link.fileno())
        self._link.close()
        self._link = None
        said = self._last_words()
        asked, self._asked = self._asked, {}
        for _, pipes, _, on_failed in asked.values():
            pipes.close_outer()
            on_failed(Refused("no_python", said))
        self._fail_all(Refused("no_python", said))
        self.pid = None

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
        waiting, self._waiting = self._waiting, collections.deque()
        for _, _, on_failed in waiting:
            on_failed(refused)
