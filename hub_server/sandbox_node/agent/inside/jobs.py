"""Commands: started, fed, followed, limited, and killed with all that they started."""

from __future__ import annotations

import os
import select
import time

from . import kernel
from .frames import CHUNK, ENDED, FAILED, STARTED, STDERR, STDOUT, WINDOW, credit_frame, json_frame
from .loop import Loop
from .signals import signal
from .starting import Pipes, Refused

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_REAPED_WITHIN_S = 2.0  # by its parent, after it was killed


class Job:
    """One command that runs, on one channel."""

    def __init__(self, loop: Loop, channel: int, pid: int, pipes: Pipes, request: dict[str, Any]) -> None:
        self.channel, self.pid = channel, pid
        self._loop = loop
        self._started = time.monotonic()
        self._fds = {STDOUT: pipes.out_fd, STDERR: pipes.error_fd}
        self._written = {STDOUT: 0, STDERR: 0}
        self._most = request.get("most_output")
        self._credit = WINDOW
        self._waiting: set[int] = set()
        self._input_fd = pipes.input_fd
        self._input = bytearray()
        self._input_ends = False
        self.timed_out = self.was_cut = False
        for kind, fd in self._fds.items():
            loop.watch(fd, select.EPOLLIN, self._reader(kind))
        timeout_s = request.get("timeout_s")
        self._timer = loop.after(timeout_s, self._time_out) if timeout_s is not None else None
        self.on_overrun: Callable[[Job], None] = _nothing_to_do
        self.on_unreaped: Callable[[Job], None] = _nothing_to_do

    # What it writes.

    def allow(self, size: int) -> None:
        """Let the node have `size` bytes more."""
        self._credit += size
        self._go_on()

    def _reader(self, kind: int) -> Callable[[int], None]:
        def read(_events: int) -> None:
            self._read(kind)

        return read

    def _read(self, kind: int) -> None:
        """Pass on what one pipe holds, as far as the node wants it."""
        fd = self._fds.get(kind)
        if fd is None:
            return
        if self._credit <= 0 or self._loop.is_clogged:
            self._loop.forget(fd)
            if not self._waiting and self._credit > 0:
                self._loop.when_clear(self._go_on)
            self._waiting.add(kind)
            return
        try:
            data = os.read(fd, min(CHUNK, self._credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(kind)
            return
        self._pass_on(kind, data)

    def _pass_on(self, kind: int, data: bytes) -> None:
        if self._most is not None:
            data = data[: self._most - self._written[kind]]
        if data:
            self._written[kind] += len(data)
            self._credit -= len(data)
            self._loop.send_frame(kind, self.channel, data)
        if self._most is not None and self._written[kind] >= self._most and not self.was_cut:
            self.was_cut = True
            self._kill_all()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for kind in waiting:
            fd = self._fds.get(kind)
            if fd is not None:
                self._loop.watch(fd, select.EPOLLIN, self._reader(kind))

    def _drop(self, kind: int) -> None:
        fd = self._fds.pop(kind, None)
        if fd is not None:
            self._loop.forget(fd)
            os.close(fd)

    # What it reads.

    def feed(self, data: bytes) -> None:
        """Give it input; none at all is the end of it."""
        if self._input_fd is None:
            return
        if not data:
            self._input_ends = True
        self._input += data
        self._write_input()

    def _write_input(self, _events: int = 0) -> None:
        assert self._input_fd is not None
        while self._input:
            try:
                sent = os.write(self._input_fd, memoryview(self._input)[:CHUNK])
            except BlockingIOError:
                self._loop.watch(self._input_fd, select.EPOLLOUT, self._write_input)
                return
            except OSError:  # nobody reads it any more
                self._loop.send(credit_frame(self.channel, len(self._input)))
                self._input.clear()
                self._input_ends = True
                break
            del self._input[:sent]
            self._loop.send(credit_frame(self.channel, sent))
        self._loop.forget(self._input_fd)
        if self._input_ends:
            os.close(self._input_fd)
            self._input_fd = None

    # Its end.

    def signal(self, number: int) -> None:
        """Send it a signal, and to its group, as a terminal does; a kill takes all below it too."""
        if number == signal.SIGKILL:
            self._kill_all()
        else:
            kernel.kill_group(self.pid, number)

    def _time_out(self) -> None:
        self.timed_out = True
        self._kill_all()
        self._timer = self._loop.after(_REAPED_WITHIN_S, lambda: self.on_unreaped(self))

    def _kill_all(self) -> None:
        if not kernel.kill_tree(self.pid):
            self.on_overrun(self)

    def finish(self, status: int, usage: Any) -> None:
        """Say how it ended, after what it wrote until then; what it left running holds nothing up."""
        self._loop.cancel(self._timer)
        self._drain()
        for kind in list(self._fds):
            self._drop(kind)
        if self._input_fd is not None:
            self._loop.forget(self._input_fd)
            os.close(self._input_fd)
            self._input_fd = None
        code = os.waitstatus_to_exitcode(status)
        self._loop.send(
            json_frame(
                ENDED,
                self.channel,
                {
                    "exit_code": code if code >= 0 else 128 - code,
                    "signal": -code if code < 0 else None,
                    "timed_out": self.timed_out,
                    "cut": self.was_cut,
                    "cpu_s": usage[0] + usage[1],
                    "peak_memory_bytes": usage[2] * 1024,
                    "wall_s": time.monotonic() - self._started,
                },
            )
        )

    def _drain(self) -> None:
        # Credit bounds what the node holds of a command that runs; of one that ended there is a pipe's content at most.
        self._credit = max(self._credit, 4 * WINDOW)
        for kind in (STDOUT, STDERR):
            fd = self._fds.get(kind)
            while fd is not None and not self.was_cut:
                try:
                    data = os.read(fd, CHUNK)
                except OSError:
                    break
                if not data or self._credit <= 0:
                    break
                self._pass_on(kind, data)


def _nothing_to_do(_job: Job) -> None:
    """Do nothing; the agent sets what is done."""


def started_frame(channel: int, pid: int) -> bytes:
    """Return the frame that tells the process id of a command."""
    return json_frame(STARTED, channel, {"pid": pid})


def failed_frame(channel: int, refused: Refused) -> bytes:
    """Return the frame that says why a request was not met."""
    return json_frame(FAILED, channel, {"kind": refused.kind, "message": refused.message})
