"""The side of HTTP/1.1 that a server is on: one request over a connection of its own, and the answer to it.

Messages are read whole and written anew, never passed on as bytes: what h11 does not take for one proper message does
not go on, and no answer can be taken for that of another request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import h11

from hub_server.sandbox_node.network.headers import Headers, end_to_end, values
from hub_server.sandbox_node.network.streams import ByteStream

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]
_HEADER_BYTES = 256 * 1024


class NoAnswer(OSError):
    """The server closed the connection, was silent, or does not speak HTTP; no answer has begun."""


class Answer:
    """What a server answers; the body is read once."""

    def __init__(self, head: h11.Response, protocol: h11.Connection, outer: ByteStream, idle_s: float) -> None:
        self.status = head.status_code
        self.reason = head.reason
        chunked = bool(values(head.headers, b"transfer-encoding"))
        # Where a message comes in chunks, a length that it also has is not the one that counts.
        self.headers: Headers = [
            (name, value)
            for name, value in end_to_end(head.headers)
            if not (chunked and name.lower() == b"content-length")
        ]
        self._protocol, self._outer, self._idle_s = protocol, outer, idle_s

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes.

        Raises:
            ConnectionAbortedError: the server stopped before its end.
        """
        try:
            while isinstance(event := await _next_event(self._protocol, self._outer, self._idle_s), h11.Data):
                yield bytes(event.data)
        except (h11.RemoteProtocolError, OSError) as error:
            raise ConnectionAbortedError("the answer was cut short") from error
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionAbortedError("the answer was cut short")


@contextlib.asynccontextmanager
async def exchange(
    outer: ByteStream, head: h11.Request, body: AsyncIterator[bytes], idle_s: float
) -> AsyncIterator[Answer]:
    """Send a request, its body as it comes, and give the answer as soon as it begins.

    Args:
        outer: a new connection to the server.
        head: the request; see `request_head`.
        body: what it sends; what is left of it when the answer has ended is not read.
        idle_s: how long the server may be silent.

    Raises:
        NoAnswer: there is none.
    """
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)

    async def send() -> None:
        await outer.write(protocol.send(head) or b"")
        async for data in body:
            await outer.write(protocol.send(h11.Data(data=data)) or b"")
        await outer.write(protocol.send(h11.EndOfMessage()) or b"")

    sending = asyncio.ensure_future(send())
    try:
        yield await _answer(protocol, outer, idle_s)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def request_head(method: bytes, path: bytes, host: bytes, headers: Headers) -> h11.Request:
    """Return the head of a request as it goes on, from the fields with which it came."""
    kept = [(name, value) for name, value in end_to_end(headers) if name.lower() != b"host"]
    framing = [(b"Transfer-Encoding", b"chunked")] if values(headers, b"transfer-encoding") else []
    return h11.Request(
        method=method, target=path, headers=[(b"Host", host), *kept, *framing, (b"Connection", b"close")]
    )


async def _answer(protocol: h11.Connection, outer: ByteStream, idle_s: float) -> Answer:
    try:
        while isinstance(event := await _next_event(protocol, outer, idle_s), h11.InformationalResponse):
            pass
    except (h11.RemoteProtocolError, OSError) as error:
        raise NoAnswer("the server gave no proper HTTP answer") from error
    if not isinstance(event, h11.Response):
        raise NoAnswer("the server closed the connection without an answer")
    return Answer(event, protocol, outer, idle_s)


async def _next_event(protocol: h11.Connection, outer: ByteStream, idle_s: float) -> Event:
    while (event := protocol.next_event()) is h11.NEED_DATA:
        async with asyncio.timeout(idle_s):
            protocol.receive_data(await outer.read())
    return event
