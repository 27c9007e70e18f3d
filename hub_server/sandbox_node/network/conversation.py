"""The side of HTTP/1.1 that a program in a sandbox is on: its requests to the proxy, and the answers to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import h11

from hub_server.sandbox_node.network.exchange import Event
from hub_server.sandbox_node.network.headers import values
from hub_server.sandbox_node.network.streams import ByteStream
from hub_server.sandboxes.egress import BadDestination, Destination

_LINGER_S, _LINGER_BYTES = 2.0, 4 * 1024**2
_LONGEST_REASON = 300


class Refused(Exception):
    """A request is not let through: the status of the answer, and its reason in one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Conversation:
    """Requests that come over a stream, one after the other."""

    def __init__(self, stream: ByteStream, header_bytes: int, head_timeout_s: float, idle_timeout_s: float) -> None:
        self.stream = stream
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=header_bytes)
        self._head_timeout_s, self._idle_timeout_s = head_timeout_s, idle_timeout_s

    def begin_with(self, received: bytes) -> None:
        """Take bytes that came before this conversation began."""
        if received:  # no bytes would mean the end
            self._protocol.receive_data(received)

    async def request(self) -> h11.Request | None:
        """Return the next request; None where the client has gone.

        Raises:
            Refused: what came is no proper request.
        """
        try:
            async with asyncio.timeout(self._head_timeout_s):
                event = await self._next_event()
        except h11.RemoteProtocolError as error:
            what = str(error).partition(":")[0]  # what follows is a copy of what was sent
            raise Refused(error.error_status_hint, f"not a proper HTTP request: {what}") from None
        if not isinstance(event, h11.Request):
            return None
        lengths = values(event.headers, b"transfer-encoding"), values(event.headers, b"content-length")
        if all(lengths) or (event.method == b"CONNECT" and any(lengths)):
            raise Refused(400, "two readers would not agree on where this request ends")
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body of the request as it comes."""
        if self._protocol.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            async with asyncio.timeout(self._idle_timeout_s):
                event = await self._next_event()
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def send(self, *events: h11.Event) -> None:
        """Send parts of an answer."""
        if data := b"".join(self._protocol.send(event) or b"" for event in events):
            async with asyncio.timeout(self._idle_timeout_s):
                await self.stream.write(data)

    async def refuse(self, refusal: Refused) -> None:
        """Answer with a refusal, whose reason stands in the status line too: many clients show nothing else.

        Raises:
            ConnectionAbortedError: another answer has begun.
        """
        if self._protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise ConnectionAbortedError(refusal.reason)
        line = " ".join(refusal.reason.encode("ascii", "replace").decode("ascii").split())
        reason = line if len(line) <= _LONGEST_REASON else HTTPStatus(refusal.status).phrase
        body = f"{line}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        await self.send(
            h11.Response(status_code=refusal.status, headers=headers, reason=reason.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )

    async def switch(self) -> bytes:
        """Answer CONNECT, and return what of the tunnel came already; from here on the stream is the caller's."""
        self._protocol.next_event()
        received = bytes(self._protocol.trailing_data[0])
        await self.stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return received

    def goes_on(self) -> bool:
        """Say whether another request may follow, and be ready for it."""
        protocol = self._protocol
        with contextlib.suppress(h11.ProtocolError):
            if protocol.their_state is h11.SEND_BODY:
                protocol.next_event()  # the end of a request without a body
            if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
                protocol.start_next_cycle()
                return True
        return False

    async def linger(self) -> None:
        """Take what the client still sends, for a moment: one whose data is not taken may lose the answer with it."""
        taken = 0
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_LINGER_S):
                await self.stream.close_writing()
                while taken < _LINGER_BYTES and (data := await self.stream.read()):
                    taken += len(data)

    async def _next_event(self) -> Event:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self.stream.read())
        return event


def destination_of(authority: bytes, default_port: int | None = None) -> Destination:
    """Return the destination of `host:port`.

    Raises:
        Refused: it is none.
    """
    text = authority.decode("latin-1")
    host, colon, port = text.rpartition(":")
    if "]" in port or (not colon and default_port is not None):
        host, port = text, str(default_port)
    if not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise Refused(400, f"{text[:80]!a} is not of the form host:port")
    try:
        return Destination.of(host, int(port))
    except BadDestination as error:
        raise Refused(403, str(error)) from None


def target_of_proxy(request: h11.Request) -> tuple[Destination, bytes]:
    """Return whom a request to a proxy is for, and the path there.

    Raises:
        Refused: it is for no plain HTTP server, or its parts contradict each other.
    """
    scheme, separator, rest = request.target.partition(b"://")
    if not separator:
        raise Refused(400, "this is a proxy: it takes http://HOST/PATH, and CONNECT for all else")
    if scheme.lower() != b"http":
        raise Refused(400, f"the proxy takes http:// and CONNECT, not {scheme[:20].decode('latin-1')!a}")
    end = next((at for at, byte in enumerate(rest) if byte in b"/?#"), len(rest))
    authority, path = rest[:end], rest[end:]
    if b"@" in authority or b"#" in path:
        raise Refused(400, "a URL with credentials or a fragment")
    destination = destination_of(authority, 80)
    for host in values(request.headers, b"host"):
        if destination_of(host, 80) != destination:
            raise Refused(400, f"the Host of the request is not {destination}, which it is sent to")
    return destination, path if path.startswith(b"/") else b"/" + path


def target_in_tunnel(request: h11.Request, tunnel: Destination) -> bytes:
    """Return the path of a request inside a tunnel.

    Raises:
        Refused: the request is not for the tunnel's destination.
    """
    hosts = values(request.headers, b"host")
    if len(hosts) != 1 or not request.target.startswith(b"/"):
        raise Refused(400, "a request that names no host, or is not for a server")
    asked = destination_of(hosts[0], tunnel.port)
    if asked != tunnel:
        raise Refused(403, f"the tunnel is to {tunnel}, and the request inside it is for {asked}")
    return bytes(request.target)
