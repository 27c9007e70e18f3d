"""HTTP/1.1 as uvicorn serves it, with a bound on what a client may send before anybody asks who it is.

uvicorn's own protocol keeps fields for as long as they come: one connection without a key could fill the memory of a
server. Here a head, and the fields after a body in chunks, have a size and a time.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 60.0
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 36\r\nconnection: close\r\n\r\nthe head of a request is too large.\n"
)


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections whose heads are too long or do not come to an end."""

    _unread = 0  # bytes since the parser last gave out something that is not a field
    _has_progress = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request soon."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        super().connection_lost(exc)
        self._head_is_there()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and count those that are parts of a head."""
        self._has_progress = False
        super().data_received(data)
        self._unread = 0 if self._has_progress else self._unread + len(data)
        if self._unread > MOST_HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """End to read a head."""
        self._has_progress = True
        self._head_is_there()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which others bound."""
        self._has_progress = True
        super().on_body(body)

    def on_chunk_header(self) -> None:
        """Take note that a chunk begins, also the empty one that fields follow."""
        self._has_progress = True

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._has_progress = True
        super().on_message_complete()

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _head_is_there(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()
