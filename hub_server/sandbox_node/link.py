"""The node's side of the framed protocol that it speaks with the agent of a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from hub_server.sandbox_node.agent.inside import frames
from hub_server.sandbox_node.agent.inside.frames import Decoder, Malformed
from hub_server.sandbox_node.errors import NotStarted

_READ_SIZE = 256 * 1024
# What comes from inside is not to be believed; more than this unread means that the agent ignores the credit it has.
_MOST_UNREAD = 4 * frames.WINDOW
_MOST_FRAMES = frames.WINDOW + 1024  # unread on one channel: output may come byte by byte
_MOST_FROM_INSIDE = 1024  # connections that are open or whose end was not taken in yet; an agent makes far fewer


class Frame(NamedTuple):
    """What an agent said on a channel. `kind` is one of `frames`, or GONE."""

    kind: int
    payload: bytes


GONE = -1  # the agent ended: nothing more comes on any channel


def decoded(payload: bytes) -> dict[str, Any]:
    """Return the answer that a frame carries.

    Raises:
        Malformed: it carries something else.
    """
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    if not isinstance(value, dict):
        raise Malformed("no object")
    return value


class Channel:
    """One command, transfer or connection; frames come in order, and bytes go out as far as the agent takes them."""

    def __init__(self, link: AgentLink, number: int) -> None:
        self.link, self.number = link, number
        self._received: deque[Frame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0
        self._takes_no_more = False
        self._send_credit = frames.WINDOW
        self._credit_given = asyncio.Event()

    async def receive(self) -> Frame:
        """Return the next frame, and let the agent send as many bytes again."""
        while not self._received:
            if self.link.closed.done():
                return Frame(GONE, b"")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        received = self._received.popleft()
        self._unread -= len(received.payload)
        if received.kind in (frames.STDOUT, frames.STDERR, frames.DATA):
            self.link.send(frames.credit_frame(self.number, len(received.payload)))
        return received

    @property
    def has_more(self) -> bool:
        """Whether `receive` would return at once."""
        return bool(self._received)

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes, waiting while the agent has not taken what was sent before; drop them once it takes no more."""
        view = memoryview(data)
        while view:
            while self._send_credit <= 0:
                if self.link.closed.done() or self._takes_no_more:
                    return
                self._credit_given.clear()
                await self._credit_given.wait()
            part = view[: min(frames.CHUNK, self._send_credit)]
            self._send_credit -= len(part)
            self.link.send(frames.frame(frames.INPUT, self.number, bytes(part)))
            view = view[len(part) :]

    def send_end(self) -> None:
        """Say that no more bytes will come."""
        self.link.send(frames.frame(frames.INPUT, self.number))

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame that is no bytes."""
        self.link.send(frames.frame(kind, self.number, payload))

    def ask(self, kind: int, **request: Any) -> None:
        """Send a request."""
        self.link.send(frames.request_frame(kind, self.number, request))

    def close(self) -> None:
        """Take nothing more of this channel."""
        self.link.forget(self.number)

    # For the link.

    def take(self, frame: Frame) -> None:
        """Take one frame from the agent.

        Raises:
            Malformed: it sent more than it may.
        """
        if frame.kind == frames.CREDIT:
            # Never more than the window, whatever is said: what is sent and not taken lies in our memory.
            self._send_credit = min(self._send_credit + frames.credit_of(frame.payload), frames.WINDOW)
            self._credit_given.set()
            return
        if frame.kind in (frames.FAILED, frames.ENDED):
            self._takes_no_more = True
        self._unread += len(frame.payload)
        if self._unread > _MOST_UNREAD + frames.CHUNK or len(self._received) > _MOST_FRAMES:
            raise Malformed("more than was asked for")
        self._received.append(frame)
        self.wake()

    def wake(self) -> None:
        """Let who waits look again."""
        self._credit_given.set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AgentLink(asyncio.Protocol):
    """One agent, reached over two pipes; all channels to it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[Any] = loop.create_future()
        self._hello: asyncio.Future[Any] = loop.create_future()
        self._decoder = Decoder()
        self._channels: dict[int, Channel] = {}
        self._next = 0
        self._reader: asyncio.BaseTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self.last_words = ""  # of an agent that broke
        self.on_connection: Callable[[Channel], None] | None = None

    @classmethod
    async def over(cls, read_fd: int, write_fd: int) -> AgentLink:
        """Return the link over two descriptors, which it owns from now on."""
        loop = asyncio.get_running_loop()
        link = cls()
        reader = os.fdopen(read_fd, "rb", buffering=0)
        writer = os.fdopen(write_fd, "wb", buffering=0)
        try:
            link._reader, _ = await loop.connect_read_pipe(lambda: link, reader)
            link._writer, _ = await loop.connect_write_pipe(lambda: _Writing(link), writer)
        except BaseException:
            link.close()
            reader.close()
            writer.close()
            raise
        return link

    async def ready(self, timeout_s: float) -> dict[str, Any]:
        """Return what the agent says of itself when it is ready.

        Raises:
            NotStarted: it said nothing within `timeout_s`, or is gone.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([self._hello, self.closed], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise NotStarted(f"the agent of a new sandbox said nothing for {timeout_s:g} s") from None
        if not self._hello.done():
            raise NotStarted("the agent of a new sandbox ended before it was ready")
        hello: dict[str, Any] = self._hello.result()
        return hello

    def open(self) -> Channel:
        """Return a new channel."""
        self._next += 1
        channel = self._channels[self._next] = Channel(self, self._next)
        return channel

    def forget(self, number: int) -> None:
        """Drop what comes on a channel from now on."""
        self._channels.pop(number, None)

    def send(self, data: bytes) -> None:
        """Send frames; what is sent to an agent that is gone is lost, and its channels say so."""
        if self._writer is not None and not self.closed.done():
            self._writer.write(data)

    def close(self) -> None:
        """Let go of the agent, which ends then with all that it runs."""
        for transport in (self._reader, self._writer):
            if transport is not None:
                transport.close()
        self.lost()

    def lost(self) -> None:
        """Tell all channels that the agent is gone."""
        if self.closed.done():
            return
        self.closed.set_result(None)
        for channel in list(self._channels.values()):
            with contextlib.suppress(Malformed):
                channel.take(Frame(GONE, b""))

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Take what the agent sent."""
        try:
            for kind, number, payload in self._decoder.feed(data):
                self._take(kind, number, payload)
        except Malformed as error:
            # Whoever speaks there is not our agent any more.
            self.last_words = f"it broke the protocol: {error}"
            self.close()

    def eof_received(self) -> None:
        """Take note that the agent closed its end."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the agent is gone."""
        self.close()

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            if not self._hello.done():
                self._hello.set_result(decoded(payload))
            return
        if kind == frames.FAILED and number == 0:
            self.last_words = str(decoded(payload).get("message", ""))[-2000:]
            return
        if kind == frames.ACCEPTED and number >= frames.FROM_INSIDE:
            if sum(known >= frames.FROM_INSIDE for known in self._channels) >= _MOST_FROM_INSIDE:
                raise Malformed("more connections than it may make")
            channel = self._channels[number] = Channel(self, number)
            if self.on_connection is not None:
                self.on_connection(channel)
            else:
                channel.send(frames.CLOSE)
                channel.close()
            return
        known = self._channels.get(number)
        if known is not None:
            known.take(Frame(kind, payload))


class _Writing(asyncio.BaseProtocol):
    """The protocol of the pipe towards the agent, which only tells that it broke."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.close()
