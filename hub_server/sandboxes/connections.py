"""HTTP/1.1 to nodes over connections that stay open.

Each creation of a sandbox waits for one such call, and a general client would take longer for it than the node does.
Here a request is one write, and an answer is parsed as it comes in.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from functools import cached_property
from typing import cast
from urllib.parse import urlsplit

import httptools

_CONNECT_S = 5.0
_KEPT_IDLE_S = 30.0  # nodes keep them open longer, so that hardly ever one is closed as it is taken
_MOST_KEPT = 64
_MOST_ANSWERED = 64 * 1024**2


class NoAnswer(Exception):
    """Nobody is there, or what is there does not speak HTTP; the text says what was seen."""


@dataclass(frozen=True)
class Answered:
    """The answer to a request."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Address:
    """Where a server is."""

    host: str
    port: int
    is_tls: bool
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Return where an http or https URL leads."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls, parts.path.rstrip("/"))

    @cached_property
    def host_header(self) -> str:
        """What the Host header of requests says."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connections:
    """Open connections by address; for one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[_Connection]] = {}

    async def send(
        self, address: Address, method: str, path: str, *, bearer: str, body: bytes = b"", timeout_s: float
    ) -> Answered:
        """Send a request with a JSON body and return the answer.

        It is sent once more, over a fresh connection, when one that was kept turns out to be closed.

        Raises:
            NoAnswer: there is none in time.
        """
        head = (
            f"{method} {address.path}{path} HTTP/1.1\r\nHost: {address.host_header}\r\n"
            f"Authorization: Bearer {bearer}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    kept = self._take(address)
                    connection = kept or await self._connect(address)
                    try:
                        answered = await connection.ask(head.encode() + body)
                    except NoAnswer:
                        if kept is None or connection.has_answered_in_part:
                            raise
                        continue
                    finally:
                        self._keep(address, connection)
                    return answered
        except TimeoutError:
            raise NoAnswer("no answer in time") from None

    def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _take(self, address: Address) -> _Connection | None:
        kept = self._idle.get(address, [])
        while kept:
            connection = kept.pop()
            if connection.is_usable and time.monotonic() - connection.idle_since < _KEPT_IDLE_S:
                return connection
            connection.close()
        return None

    def _keep(self, address: Address, connection: _Connection) -> None:
        kept = self._idle.setdefault(address, [])
        if connection.is_usable and len(kept) < _MOST_KEPT:
            connection.idle_since = time.monotonic()
            kept.append(connection)
        else:
            connection.close()

    async def _connect(self, address: Address) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    _Connection, address.host, address.port, ssl=self._tls if address.is_tls else None
                )
        except TimeoutError:
            raise NoAnswer("no connection in time") from None
        except (OSError, UnicodeError) as error:
            raise NoAnswer(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class _Connection(asyncio.Protocol):
    """One connection: a request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.has_answered_in_part = False
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answered] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._size = 0

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing() and self._waiting is None

    async def ask(self, request: bytes) -> Answered:
        """Send a request and return its answer.

        Raises:
            NoAnswer: the connection broke, or there came something else.
        """
        assert self._waiting is None
        if self._transport is None or self._transport.is_closing():
            raise NoAnswer("the connection was closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self.has_answered_in_part = False
        self._transport.write(request)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.close()  # its answer would be taken for that of the next one
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits."""
        self._transport = None
        self._fail("the connection was closed")

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self.has_answered_in_part = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("what answers there does not speak HTTP")
            self.close()
        if self._size > _MOST_ANSWERED:
            self._fail("the answer is too large")
            self.close()

    def on_message_begin(self) -> None:
        """Begin an answer."""
        self._body = []

    def on_body(self, part: bytes) -> None:
        """Take a part of the answer."""
        self._body.append(part)

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        status, body = self._parser.get_status_code(), b"".join(self._body)
        if not self._parser.should_keep_alive():
            self.close()
        self._body, self._size = [], 0
        self._parser = httptools.HttpResponseParser(self)
        if self._waiting is not None and not self._waiting.done() and status >= 200:
            self._waiting.set_result(Answered(status, body))

    def _fail(self, words: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoAnswer(words))
