"""The agent's loop: descriptors and who waits for them, children that ended, and what is to happen later."""

from __future__ import annotations

import os
import select
import time

from .frames import Decoder, frame
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_READ_SIZE = 256 * 1024
# Above this the agent takes no more from commands until the node has read.
_MOST_UNSENT = 1024**2


class NodeGone(Exception):
    """The node closed its end: there is nobody to run anything for."""


class Loop:
    """One thread; whatever it calls must return at once."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._later: list[list[Any]] = []
        self._sequence = 0
        self._resume: list[Callable[[], None]] = []
        self._writing = False
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._poll.register(read_fd, select.EPOLLIN)
        if write_fd != read_fd:
            self._poll.register(write_fd, 0)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, _notice)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._wake_fd = wake_read
        self._poll.register(wake_read, select.EPOLLIN)

    # Descriptors.

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler` with the events of a descriptor whenever there are some."""
        if fd in self._handlers:
            self._poll.modify(fd, events)
        else:
            self._poll.register(fd, events)
        self._handlers[fd] = handler

    def forget(self, fd: int) -> None:
        """Watch a descriptor no more; before it is closed."""
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # Time.

    def after(self, delay_s: float, call: Callable[[], None]) -> list[Any]:
        """Call once after `delay_s`; the answer is what `cancel` takes."""
        self._sequence += 1
        entry: list[Any] = [time.monotonic() + delay_s, self._sequence, call]
        self._later.append(entry)
        self._later.sort()  # by time; few at once
        return entry

    def cancel(self, entry: list[Any] | None) -> None:
        """Let what was to happen later not happen; what has happened already is no mistake."""
        if entry in self._later:
            self._later.remove(entry)

    # The node.

    def send(self, data: bytes) -> None:
        """Send a frame, now or as soon as the node takes it."""
        if not self._unsent:
            try:
                sent = os.write(self._write_fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                raise NodeGone from None
            if sent == len(data):
                return
            data = data[sent:]
        self._unsent += data
        self._want_to_write()

    def send_frame(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Send one frame made of its parts."""
        self.send(frame(kind, channel, payload))

    @property
    def is_clogged(self) -> bool:
        """Whether the node is so far behind that nothing more should be read for it."""
        return len(self._unsent) > _MOST_UNSENT

    def when_clear(self, call: Callable[[], None]) -> None:
        """Call once the node has caught up."""
        self._resume.append(call)

    def run(self, on_frame: Callable[[int, int, bytes], None], on_children: Callable[[], None]) -> None:
        """Serve until the node is gone.

        Raises:
            NodeGone: it is.
            Malformed: what it sent is no frame.
        """
        while True:
            for fd, events in self._poll.poll(self._wait_s()):
                if fd == self._read_fd and events & ~select.EPOLLOUT:
                    for kind, channel, payload in self._decoder.feed(self._read()):
                        on_frame(kind, channel, payload)
                elif fd == self._wake_fd:
                    os.read(self._wake_fd, 4096)
                    on_children()
                elif fd != self._write_fd and fd in self._handlers:
                    self._handlers[fd](events)
                if fd == self._write_fd and events & (select.EPOLLOUT | select.EPOLLERR):
                    self._flush()
            self._ring()

    def _wait_s(self) -> float:
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else -1

    def _ring(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            self._later.pop(0)[2]()

    def _read(self) -> bytes:
        try:
            data = os.read(self._read_fd, _READ_SIZE)
        except BlockingIOError:
            return b""
        except OSError:
            raise NodeGone from None
        if not data:
            raise NodeGone
        return data

    def _flush(self) -> None:
        try:
            sent = os.write(self._write_fd, memoryview(self._unsent)[: 1024**2])
        except BlockingIOError:
            return
        except OSError:
            raise NodeGone from None
        del self._unsent[:sent]
        self._want_to_write()
        if not self.is_clogged:
            waiting, self._resume = self._resume, []
            for call in waiting:
                call()

    def _want_to_write(self) -> None:
        wanted = bool(self._unsent)
        if wanted != self._writing:
            self._writing = wanted
            events = (select.EPOLLIN if self._write_fd == self._read_fd else 0) | (select.EPOLLOUT if wanted else 0)
            self._poll.modify(self._write_fd, events)


def _notice(_number: int, _frame: object) -> None:
    """Be a handler, for process 1 gets no signal that it has none for; the wakeup descriptor does the rest."""
