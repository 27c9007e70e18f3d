"""WebSockets from outside to a port of a sandbox: two of them, with messages carried from one to the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from starlette.types import Message, Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from hub_server.sandbox_node.network.exchange import NoAnswer
from hub_server.sandbox_node.network.headers import Headers, end_to_end
from hub_server.sandbox_node.network.port_headers import Place
from hub_server.sandbox_node.network.streams import ByteStream

_MOST_MESSAGE_BYTES = 16 * 1024**2
_HANDSHAKE_TIMEOUT_S = 30.0
# Fields that each of the two handshakes has for itself.
_OF_ONE_HANDSHAKE = (b"sec-websocket-", b"host")
# Codes that stand for a missing code, and are never sent.
_NO_CODES = (CloseCode.NO_STATUS_RCVD, CloseCode.ABNORMAL_CLOSURE, CloseCode.TLS_HANDSHAKE)


async def forward_socket(
    stream: ByteStream, place: Place, target: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Carry messages between a client's WebSocket and one to the sandbox, until one of them closes.

    Raises:
        NoAnswer: the port takes no WebSocket; the client's is not accepted yet.
    """
    await receive()  # websocket.connect
    inner = _InnerSocket(stream, place, target, scope)
    async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
        headers = await inner.open()
    await send({"type": "websocket.accept", "subprotocol": inner.subprotocol, "headers": headers})
    ways = [asyncio.ensure_future(_outwards(inner, send)), asyncio.ensure_future(_inwards(inner, receive))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _outwards(inner: _InnerSocket, send: Send) -> None:
    """Carry what the sandbox says."""
    with contextlib.suppress(OSError):
        while (message := await inner.read()) is not None:
            await send(message)
    await send(inner.closing)


async def _inwards(inner: _InnerSocket, receive: Receive) -> None:
    """Carry what the client says."""
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text")
        await inner.write(message["bytes"] if text is None else text)
    await inner.close(message.get("code", CloseCode.GOING_AWAY))


class _InnerSocket:
    """A WebSocket to a port inside."""

    def __init__(self, stream: ByteStream, place: Place, target: bytes, scope: Scope) -> None:
        uri = parse_uri("ws://" + (place.inner_host + target).decode("latin-1"))
        offered = [Subprotocol(name) for name in scope.get("subprotocols", [])]
        self._stream = stream
        self._protocol = ClientProtocol(uri, subprotocols=offered or None, max_size=_MOST_MESSAGE_BYTES)
        self._fields = _without_handshake(place.request_headers(list(scope["headers"])))
        self._place = place
        self._writing = asyncio.Lock()
        self._frames: deque[Frame] = deque()
        self._has_ended = False

    @property
    def subprotocol(self) -> str | None:
        """Return the subprotocol that both sides speak."""
        return self._protocol.subprotocol

    @property
    def closing(self) -> Message:
        """Return how the sandbox closed it, as a message to the client."""
        close = self._protocol.close_rcvd
        if close is None or close.code in _NO_CODES:
            return {"type": "websocket.close", "code": int(CloseCode.GOING_AWAY), "reason": ""}
        return {"type": "websocket.close", "code": int(close.code), "reason": close.reason}

    async def open(self) -> Headers:
        """Shake hands, and return the fields of the answer that are for the client.

        Raises:
            NoAnswer: the port takes no WebSocket.
        """
        request = self._protocol.connect()
        for name, value in self._fields:
            request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(request)
        await self._flush()
        answer: Response | None = None
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            answer = await self._receive() or answer
        if answer is None or self._protocol.handshake_exc is not None:
            raise NoAnswer("it takes no WebSocket there")
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.raw_items()]
        return _without_handshake(self._place.answer_headers(fields))

    async def read(self) -> Message | None:
        """Return the next message for the client; None when the sandbox has closed the socket."""
        parts: list[bytes] = []
        is_text = False
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    is_text = is_text or frame.opcode is Opcode.TEXT
                    parts.append(bytes(frame.data))
                    if frame.fin:
                        data = b"".join(parts)
                        content = {"text": data.decode("utf-8", "replace")} if is_text else {"bytes": data}
                        return {"type": "websocket.send", **content}
            if self._has_ended or self._protocol.state is not State.OPEN:
                return None
            await self._receive()

    async def write(self, message: str | bytes) -> None:
        """Send a message into the sandbox."""
        if self._protocol.state is State.OPEN:
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
            await self._flush()

    async def close(self, code: int) -> None:
        """Tell the sandbox that the client has closed the socket."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.GOING_AWAY if code in _NO_CODES else code)
            await self._flush()

    async def _receive(self) -> Response | None:
        """Take what comes; return the answer to the handshake when it is that."""
        if data := await self._stream.read():
            self._protocol.receive_data(data)
        else:
            self._has_ended = True
            self._protocol.receive_eof()
        events = self._protocol.events_received()
        self._frames += (event for event in events if isinstance(event, Frame))
        await self._flush()
        return next((event for event in events if isinstance(event, Response)), None)

    async def _flush(self) -> None:
        async with self._writing:  # both ways send: messages, and answers to pings
            for data in self._protocol.data_to_send():
                if data:
                    await self._stream.write(data)
                else:
                    await self._stream.close_writing()


def _without_handshake(headers: Headers) -> Headers:
    """Return the fields that are not about the handshake itself."""
    return [(name, value) for name, value in end_to_end(headers) if not name.lower().startswith(_OF_ONE_HANDSHAKE)]
