"""Requests from outside to a port of a sandbox, by HTTP and by WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import h11
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from hub_server.sandbox_node.connections import Stream
from hub_server.sandbox_node.errors import Gone
from hub_server.sandbox_node.network.exchange import Answer, NoAnswer, exchange, request_head
from hub_server.sandbox_node.network.exposures import PATH, Exposures
from hub_server.sandbox_node.network.port_headers import Place
from hub_server.sandbox_node.network.port_sockets import forward_socket
from hub_server.sandbox_node.sandbox import Sandbox

CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 600.0


class ExposedPorts:
    """An ASGI app for the paths `/exposed/ID/...`: what comes there goes to the port that the id stands for."""

    def __init__(self, exposures: Exposures) -> None:
        self._exposures = exposures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        own_path = scope["path"].removeprefix(scope.get("root_path", ""))
        exposure_id, slash, _ = own_path.removeprefix(PATH).partition("/")
        found = self._exposures.find(exposure_id)
        if found is None:
            await refuse(scope, receive, send, 404, "no port is exposed at this URL, or not any more")
            return
        if not slash and scope["type"] == "http":
            # Without the slash the links of the page would lead past it.
            await RedirectResponse(found.exposure.path())(scope, receive, send)
            return
        place = Place(origin_of(scope), found.exposure.path().encode(), found.exposure.port, authorized=False)
        await forward(found.sandbox, place, scope, receive, send)


async def forward(sandbox: Sandbox, place: Place, scope: Scope, receive: Receive, send: Send) -> None:
    """Let a port of a sandbox answer a request or a WebSocket whose path is below `place.path`."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    target = b"/" + raw_path.partition(place.path)[2]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    try:
        with sandbox.using():
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                stream = await sandbox.connect(place.port)
            try:
                carry = forward_socket if scope["type"] == "websocket" else _forward_request
                await carry(stream, place, target, scope, receive, send)
            finally:
                stream.close()
    except Gone as gone:
        await refuse(scope, receive, send, 410, gone.detail)
    except (ConnectionRefusedError, TimeoutError):
        await refuse(scope, receive, send, 502, f"nothing in the sandbox answers on port {place.port}")
    except NoAnswer as error:
        await refuse(scope, receive, send, 502, f"port {place.port} of the sandbox: {error}")


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, detail: str) -> None:
    """Refuse a request, or a WebSocket that was not accepted yet."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1013, "reason": detail})
        return
    await PlainTextResponse(detail + "\n", status)(scope, receive, send)


def origin_of(scope: Scope) -> bytes:
    """Return `scheme://host` as the client of a request sees it."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    return f"{scheme}://".encode() + bytes(host)


async def _forward_request(
    stream: Stream, place: Place, target: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Send a request on, and its answer back, for as long as the client is there."""
    headers = place.request_headers(scope["headers"])
    try:
        head = request_head(scope["method"].encode(), target, place.inner_host, headers)
    except h11.LocalProtocolError:
        await refuse(scope, receive, send, 400, "not a proper HTTP request")
        return
    client = _Client(receive)
    leaving = asyncio.ensure_future(client.gone())
    try:
        async with exchange(stream, head, client.body(), IDLE_TIMEOUT_S) as answer:
            answering = asyncio.ensure_future(_answer(answer, place, send))
            try:
                await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
        if not answering.cancelled():
            # An answer that is cut short stays so: the server ends a connection whose answer was not completed.
            with contextlib.suppress(ConnectionAbortedError):
                answering.result()
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def _answer(answer: Answer, place: Place, send: Send) -> None:
    headers = place.answer_headers(answer.headers)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    async for data in answer.body():
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Client:
    """What an ASGI client sends, and whether it is still there."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_sent_all = asyncio.Event()
        self._is_gone = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._is_gone.set()
                raise ConnectionResetError("the client has gone")
            if data := message.get("body", b""):
                yield data
            if not message.get("more_body", False):
                self._has_sent_all.set()
                return

    async def gone(self) -> None:
        """Return when the client has gone."""
        watching = [asyncio.ensure_future(self._is_gone.wait()), asyncio.ensure_future(self._silent_client_gone())]
        try:
            await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watching:
                watch.cancel()

    async def _silent_client_gone(self) -> None:
        await self._has_sent_all.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
