"""Streams of bytes: what a proxy carries between a sandbox and the world."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

READ_AT_ONCE = 64 * 1024
_FLUSH_S = 30.0


class ByteStream(Protocol):
    """Both directions of a connection, as `link.Stream` and `SocketStream` have them."""

    async def read(self) -> bytes:
        """Return what came; b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side takes no more."""

    async def close_writing(self) -> None:
        """Say that nothing more is sent; what comes can still be read."""

    def close(self) -> None:
        """End both directions; it may be called twice."""


class SocketStream:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Return what came; b"" at the end."""
        return await self._reader.read(READ_AT_ONCE)

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side takes no more."""
        self._writer.write(data)
        await self._writer.drain()

    async def close_writing(self) -> None:
        """Say that nothing more is sent."""
        if self._writer.can_write_eof():
            with contextlib.suppress(OSError):
                self._writer.write_eof()

    def close(self) -> None:
        """End both directions once everything is sent, which the other side cannot put off for ever."""
        self._writer.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.abort)

    def abort(self) -> None:
        """End both directions at once."""
        self._writer.transport.abort()


Carried = Callable[[int, int], Awaitable[None]]


async def splice(inner: ByteStream, outer: ByteStream, carried: Carried, idle_s: float) -> None:
    """Carry bytes both ways until both directions have ended, one is broken, or nothing moved for `idle_s`.

    Args:
        inner: the side of the sandbox.
        outer: the other side.
        carried: told how many bytes are to go out and how many in; they go when it returns.
        idle_s: how long both directions together may be silent.
    """
    loop = asyncio.get_running_loop()
    last = loop.time()

    async def carry(source: ByteStream, sink: ByteStream, outwards: bool) -> None:
        nonlocal last
        while data := await source.read():
            last = loop.time()
            await carried(*((len(data), 0) if outwards else (0, len(data))))
            await sink.write(data)
        await sink.close_writing()

    ways = [asyncio.ensure_future(carry(inner, outer, True)), asyncio.ensure_future(carry(outer, inner, False))]
    try:
        pending = set(ways)
        while pending and (left_s := last + idle_s - loop.time()) > 0:
            done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if any(way.exception() for way in done):
                return
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
