"""Serves methods over the Connect protocol on HTTP/1.1: unary, with a stream of answers, or with a stream of requests.

A method's handler sees messages only. A stream of answers is a generator: what it yields while nobody could write goes
out in one piece, a keepalive follows when it is silent, and it is closed when the client has gone, when its time is
over, or when it ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hub_server.sandbox_node.gateway.bodies import left
from hub_server.sandbox_node.gateway.codecs import STREAMING, UNARY, Codec
from hub_server.sandbox_node.gateway.envelopes import (
    HTTP_STATUS,
    MOST_MESSAGE_BYTES,
    Code,
    EnvelopeReader,
    RpcError,
    end_of_stream,
    envelope,
    gunzip,
    too_long,
)

KEEPALIVE_S = 10.0
LINGER_S = 0.003  # with the first answers, for the next to go out with them
MOST_WAITING_BYTES = 1024**2  # of answers that the client has not taken; then the handler waits
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """What a handler is told besides its message."""

    sandbox: Any
    timeout_s: float | None


@dataclass(frozen=True)
class Unary:
    """One message in, one out."""

    request: Any
    handler: Callable[[Call, Any], Awaitable[Any]]


@dataclass(frozen=True)
class ServerStream:
    """One message in, many out. `keepalive` is sent when the handler is silent."""

    request: Any
    handler: Callable[[Call, Any], AsyncGenerator[Any, None]]
    keepalive: Any
    grace_s: float = 0.0  # after its time, for a handler that ends itself in time and tells more


@dataclass(frozen=True)
class ClientStream:
    """Many messages in, one out."""

    request: Any
    handler: Callable[[Call, AsyncIterator[Any]], Awaitable[Any]]


Method = Unary | ServerStream | ClientStream


async def serve(
    method: Method, open_sandbox: Callable[[], Any], translate: Callable[[Exception], RpcError], request: Request
) -> None:
    """Answer one call. `open_sandbox` checks who calls; `translate` turns what handlers raise into codes.

    Raises:
        ClientDisconnect: the client went away before it had asked.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    codecs = UNARY if isinstance(method, Unary) else STREAMING
    if request.method != "POST":
        await _send(request, Response(status_code=405, headers={"allow": "POST"}))
        return
    if content_type not in codecs:
        await _send(request, Response(status_code=415, headers={"accept-post": ", ".join(codecs)}))
        return
    exchange = _Exchange(request, codecs[content_type], content_type, open_sandbox, translate)
    if isinstance(method, Unary):
        await exchange.unary(method)
    elif isinstance(method, ClientStream):
        await exchange.client_stream(method)
    else:
        await exchange.server_stream(method)


async def _send(request: Request, response: Response) -> None:
    await response(request.scope, request.receive, request._send)


class _Exchange:
    """One call, from its headers to its last byte."""

    def __init__(
        self,
        request: Request,
        codec: Codec,
        content_type: str,
        open_sandbox: Callable[[], Any],
        translate: Callable[[Exception], RpcError],
    ) -> None:
        self.request, self.codec, self.content_type = request, codec, content_type
        self.open_sandbox, self.translate = open_sandbox, translate

    def _as_rpc_error(self, error: Exception) -> RpcError:
        return error if isinstance(error, RpcError) else self.translate(error)

    def _call(self) -> Call:
        version = self.request.headers.get("connect-protocol-version", "1")
        if version != "1":
            raise RpcError(Code.INVALID_ARGUMENT, f"version {version[:20]} of the Connect protocol is not spoken here")
        timeout_ms = self.request.headers.get("connect-timeout-ms", "")
        if timeout_ms and not (timeout_ms.isascii() and timeout_ms.isdecimal() and len(timeout_ms) <= 10):
            raise RpcError(Code.INVALID_ARGUMENT, "connect-timeout-ms is no number of at most ten digits")
        return Call(self.open_sandbox(), int(timeout_ms) / 1000 if timeout_ms else None)

    def _is_gzip(self, header: str) -> bool:
        encoding = self.request.headers.get(header, "identity").lower() or "identity"
        if encoding not in ("gzip", "identity"):
            raise RpcError(Code.UNIMPLEMENTED, f"compression {encoding[:20]} is not known; gzip and identity are")
        return encoding == "gzip"

    async def _messages(self, kind: Any) -> AsyncIterator[Any]:
        reader = EnvelopeReader(gzip=self._is_gzip("connect-content-encoding"))
        async for chunk in self.request.stream():
            for payload in reader.feed(chunk):
                yield self.codec.decode(kind, payload)
        reader.finish()

    async def unary(self, method: Unary) -> None:
        """Serve a unary call: plain bodies, and errors as HTTP statuses."""
        try:
            call = self._call()
            packed = self._is_gzip("content-encoding")
            body = bytearray()
            async for chunk in self.request.stream():
                body += chunk
                if len(body) > MOST_MESSAGE_BYTES:
                    raise too_long()
            message = self.codec.decode(method.request, gunzip(bytes(body)) if packed else bytes(body))
            async with asyncio.timeout(call.timeout_s):
                answer = self.codec.encode(await method.handler(call, message))
        except ClientDisconnect:
            raise
        except TimeoutError:
            await self._refuse(RpcError(Code.DEADLINE_EXCEEDED, "the time of this call is over"))
        except Exception as error:  # noqa: BLE001  what is unknown is logged and answered as internal
            await self._refuse(self._as_rpc_error(error))
        else:
            await _send(self.request, Response(answer, media_type=self.content_type))

    async def _refuse(self, error: RpcError) -> None:
        body = json.dumps(error.as_json())
        await _send(self.request, Response(body, HTTP_STATUS[error.code], media_type="application/json"))

    async def client_stream(self, method: ClientStream) -> None:
        """Serve a call with many requests; its answer is a stream of one message."""
        failure: RpcError | None = None
        answer = b""
        try:
            call = self._call()
            async with asyncio.timeout(call.timeout_s):
                message = await method.handler(call, self._messages(method.request))
            answer = envelope(self.codec.encode(message))
        except ClientDisconnect:
            raise
        except TimeoutError:
            failure = RpcError(Code.DEADLINE_EXCEEDED, "the time of this call is over")
        except Exception as error:  # noqa: BLE001  as above
            failure = self._as_rpc_error(error)
        await _send(self.request, Response(answer + end_of_stream(failure), media_type=self.content_type))

    async def server_stream(self, method: ServerStream) -> None:
        """Serve a call with many answers."""
        try:
            call = self._call()
            asked: list[Any] = []
            async for message in self._messages(method.request):
                asked.append(message)
                if len(asked) > 1:  # the rest is not read: there may be no end to it
                    raise RpcError(Code.INVALID_ARGUMENT, "one message was expected, and more came")
            if not asked:
                raise RpcError(Code.INVALID_ARGUMENT, "one message was expected, and none came")
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  as above
            body = end_of_stream(self._as_rpc_error(error))
            await _send(self.request, Response(body, media_type=self.content_type))
            return
        answers = method.handler(call, asked[0])
        deadline_s = None if call.timeout_s is None else call.timeout_s + method.grace_s
        stream = _AnswerStream(self, answers, self.codec.encode(method.keepalive), deadline_s)
        await stream.run()


class _AnswerStream:
    """Writes what a handler yields, as it comes."""

    def __init__(
        self, exchange: _Exchange, answers: AsyncGenerator[Any, None], keepalive: bytes, deadline_s: float | None
    ) -> None:
        self._exchange, self._answers = exchange, answers
        self._keepalive, self._deadline_s = envelope(keepalive), deadline_s
        self._waiting = bytearray()  # written, and not yet sent
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._finished = self._gone = self._has_lingered = False

    async def run(self) -> None:
        """Write until the handler ended, its time is over or the client has gone."""
        send = self._exchange.request._send
        headers = [(b"content-type", self._exchange.content_type.encode())]
        loop = asyncio.get_running_loop()
        pump = loop.create_task(self._pump())
        watch = loop.create_task(self._watch())
        deadline = None if self._deadline_s is None else loop.call_later(self._deadline_s, self._time_is_over, pump)
        silence = loop.call_later(KEEPALIVE_S, self._break_silence)
        try:
            await self._something.wait()
            if not self._gone:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not self._gone:
                await self._something.wait()
                self._something.clear()
                silence.cancel()
                body, finished = bytes(self._waiting), self._finished
                self._waiting.clear()
                self._room.set()
                if not self._gone:
                    await send({"type": "http.response.body", "body": body, "more_body": not finished})
                if finished:
                    break
                silence = loop.call_later(KEEPALIVE_S, self._break_silence)
        finally:
            for timer in (silence, deadline, self._linger):
                if timer is not None:
                    timer.cancel()
            watch.cancel()
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump

    async def _pump(self) -> None:
        failure: RpcError | None = None
        try:
            async for message in self._answers:
                self._waiting += envelope(self._exchange.codec.encode(message))
                if self._linger is None:
                    # A short command has ended by then, and its client wakes up once instead of thrice.
                    self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._linger_no_more)
                elif self._has_lingered:
                    self._something.set()
                while len(self._waiting) > MOST_WAITING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except asyncio.CancelledError:
            failure = RpcError(Code.CANCELED, "the call was cancelled")
        except Exception as error:  # noqa: BLE001  what is unknown is logged and answered as internal
            failure = self._exchange._as_rpc_error(error)
        finally:
            await self._answers.aclose()
        self._finish(failure)

    def _finish(self, failure: RpcError | None) -> None:
        if not self._finished:
            self._waiting += end_of_stream(failure)
            self._finished = True
            self._something.set()

    def _time_is_over(self, pump: asyncio.Task[None]) -> None:
        self._finish(RpcError(Code.DEADLINE_EXCEEDED, "the time of this call is over"))
        pump.cancel()

    def _linger_no_more(self) -> None:
        self._has_lingered = True
        self._something.set()

    def _break_silence(self) -> None:
        self._waiting += self._keepalive
        self._something.set()

    async def _watch(self) -> None:
        await left(self._exchange.request.receive)
        self._gone = True
        self._something.set()
