"""A look at how a tunnel begins, before anything of it goes on."""

from __future__ import annotations

from collections.abc import Callable

from hub_server.sandbox_node.network.client_hello import ClientHello, HelloReader, NotTLS
from hub_server.sandbox_node.network.streams import ByteStream

# A TLS alert: fatal, access denied. Clients show it; a connection that just ends would tell them nothing.
_ACCESS_DENIED = bytes.fromhex("15 03 03 00 02 02 31")


class WatchedStream:
    """The client's side of a tunnel.

    Args:
        inner: what the client sends and gets.
        received: what it has sent already.
        look: called with the ClientHello, or with None where the tunnel does not begin with one; returns why the tunnel
            must not go on, or None where it may.
    """

    def __init__(self, inner: ByteStream, received: bytes, look: Callable[[ClientHello | None], str | None]) -> None:
        self._inner, self._received, self._look = inner, received, look
        self._looked = False

    async def read(self) -> bytes:
        """Return what came; for the first time when it is known what it is.

        Raises:
            ConnectionAbortedError: it must not go on.
        """
        if self._looked:
            return await self._inner.read()
        hello, begin = await self._beginning()
        self._looked = True
        if begin and (reason := self._look(hello)) is not None:
            await self._inner.write(_ACCESS_DENIED)
            raise ConnectionAbortedError(reason)
        return begin

    async def _beginning(self) -> tuple[ClientHello | None, bytes]:
        """Return the ClientHello, if it is one, and all bytes up to where that is known."""
        reader, begin = HelloReader(), b""
        data = self._received or await self._inner.read()
        while data:
            begin += data
            try:
                hello = reader.feed(data)
            except NotTLS:
                break
            if hello is not None:
                return hello, begin
            data = await self._inner.read()
        return None, begin

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side takes no more."""
        await self._inner.write(data)

    async def close_writing(self) -> None:
        """Say that nothing more is sent."""
        await self._inner.close_writing()

    def close(self) -> None:
        """End both directions."""
        self._inner.close()
