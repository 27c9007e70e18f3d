"""Connections that the node makes to ports inside, and those that programs inside make to the node's proxy."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable

from .frames import (
    ACCEPTED,
    CHUNK,
    DATA,
    END_OF_DATA,
    FROM_INSIDE,
    STARTED,
    WINDOW,
    credit_frame,
    json_frame,
)
from .loop import Loop
from .starting import Refused

_MOST_WAITING = 128
_MOST_OPEN = 64  # connections to the node's proxy


class Stream:
    """One connection, carried both ways."""

    def __init__(self, loop: Loop, channel: int, peer: socket.socket, on_over: Callable[[int], None]) -> None:
        self._loop, self.channel, self._peer, self._on_over = loop, channel, peer, on_over
        self._credit = WINDOW
        self._out = bytearray()
        self._reads = True  # the peer may still say something
        self._writes = True  # the node may still say something
        self._ending = False
        peer.setblocking(False)
        self._watch()

    def allow(self, size: int) -> None:
        """Let the node have `size` bytes more."""
        self._credit += size
        self._watch()

    def feed(self, data: bytes) -> None:
        """Take bytes for the peer; none at all: no more will come."""
        if not data:
            self._ending = True
        self._out += data
        self._write()

    def finish(self) -> None:
        """End it, after what is on the way to the peer where the node has said that this is all."""
        if self._ending and self._out and self._writes:
            self._reads = False
            self._watch()
        else:
            self.close()

    def close(self) -> None:
        """End it at once."""
        if self._peer.fileno() >= 0:
            self._loop.forget(self._peer.fileno())
            self._peer.close()
            self._on_over(self.channel)

    def _watch(self) -> None:
        fd = self._peer.fileno()
        if fd < 0:
            return
        events = (select.EPOLLIN if self._reads and self._credit > 0 else 0) | (select.EPOLLOUT if self._out else 0)
        if events:
            self._loop.watch(fd, events, self._serve)
        else:
            self._loop.forget(fd)

    def _serve(self, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read()
        if self._peer.fileno() >= 0 and events & select.EPOLLOUT:
            self._write()

    def _read(self) -> None:
        if self._loop.is_clogged:
            self._loop.forget(self._peer.fileno())
            self._loop.when_clear(self._watch)
            return
        try:
            data = self._peer.recv(min(CHUNK, max(1, self._credit)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
            self._writes = False
        if data:
            self._credit -= len(data)
            self._loop.send_frame(DATA, self.channel, data)
        elif self._reads:
            self._reads = False
            self._loop.send_frame(END_OF_DATA, self.channel)
        self._settle()

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._peer.send(memoryview(self._out)[:CHUNK])
                del self._out[:sent]
                self._loop.send(credit_frame(self.channel, sent))
        except BlockingIOError:
            pass
        except OSError:
            self._loop.send(credit_frame(self.channel, len(self._out)))
            self._out.clear()
            self._writes = False
        if self._ending and self._writes and not self._out:
            self._writes = False
            try:
                self._peer.shutdown(socket.SHUT_WR)
            except OSError:
                self._reads = False
        self._settle()

    def _settle(self) -> None:
        if not self._reads and not self._writes:
            self.close()
        else:
            self._watch()


class Connecting:
    """A connection that is being made to a port inside."""

    def __init__(self, loop: Loop, channel: int, port: int, on_made: Callable[[int, socket.socket], None],
                 on_refused: Callable[[int, Refused], None]) -> None:  # fmt: skip
        self._loop, self._channel = loop, channel
        self._on_made, self._on_refused, self._port = on_made, on_refused, port
        self._peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._peer.setblocking(False)
        result = self._peer.connect_ex(("127.0.0.1", port))
        if result in (0, errno.EINPROGRESS):
            loop.watch(self._peer.fileno(), select.EPOLLOUT, self._settle)
        else:
            self._refuse(result)

    def _settle(self, _events: int) -> None:
        self._loop.forget(self._peer.fileno())
        result = self._peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            self._refuse(result)
            return
        self._loop.send(json_frame(STARTED, self._channel, {}))
        self._on_made(self._channel, self._peer)

    def _refuse(self, number: int) -> None:
        self._peer.close()
        self._on_refused(self._channel, Refused("refused", f"port {self._port}: {os.strerror(number)}"))


class Listener:
    """A port inside whose connections are carried to the node; another one is found where it is taken."""

    def __init__(self, loop: Loop, port: int, on_connection: Callable[[int, socket.socket], None]) -> None:
        self._loop, self._on_connection = loop, on_connection
        self._next = FROM_INSIDE
        self._open = 0
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            try:
                self._server.bind(("127.0.0.1", port))
            except OSError:
                self._server.bind(("127.0.0.1", 0))
            self._server.listen(_MOST_WAITING)
        except OSError as error:
            self._server.close()
            raise Refused("port_taken", f"no port to listen on: {error.strerror}") from None
        self.port = self._server.getsockname()[1]
        self._server.setblocking(False)
        self._watch()

    def one_ended(self) -> None:
        """Take in that a connection is over: there is room for another one."""
        self._open -= 1
        if self._open == _MOST_OPEN - 1:
            self._watch()

    def _watch(self) -> None:
        self._loop.watch(self._server.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        self._open += 1
        if self._open == _MOST_OPEN:  # programs that want more wait, and cost the node nothing
            self._loop.forget(self._server.fileno())
        channel = self._next
        self._next = FROM_INSIDE + (self._next - FROM_INSIDE + 1) % 0x7FFFFFFF
        self._loop.send(json_frame(ACCEPTED, channel, {}))
        self._on_connection(channel, peer)
