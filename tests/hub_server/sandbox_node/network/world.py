"""A small world: hosts with public addresses, served from loopback, and streams in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address

from hub_server.sandbox_node.network import dialer
from hub_server.sandbox_node.network.proxy import Outside, ProxyLimits
from hub_server.sandbox_node.network.streams import SocketStream
from hub_server.sandboxes.egress import OperatorRules

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ALLOWED, OTHER = "93.184.216.34", "93.184.216.99"


class Pipe:
    """A stream of bytes to somebody in this process, with room for a few pieces."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue(maxsize=8)
        self.other: Pipe = self
        self.is_closed = self._is_over = False

    @classmethod
    def pair(cls) -> tuple[Pipe, Pipe]:
        one, two = cls(), cls()
        one.other, two.other = two, one
        return one, two

    async def read(self) -> bytes:
        if self._is_over:
            return b""
        data = await self.incoming.get()
        self._is_over = not data
        return data

    async def write(self, data: bytes) -> None:
        if self.other.is_closed:
            raise ConnectionResetError
        if data:
            await self.other.incoming.put(data)

    async def close_writing(self) -> None:
        await self.other.incoming.put(b"")

    def close(self) -> None:
        self.is_closed = True
        while self.other.incoming.full():  # who closes does not wait
            self.other.incoming.get_nowait()
        self.other.incoming.put_nowait(b"")

    async def read_all(self) -> bytes:
        """Return all that comes until the end."""
        parts = []
        while data := await self.read():
            parts.append(data)
        return b"".join(parts)

    async def read_until(self, end: bytes) -> bytes:
        """Return what comes until `end` is in it, or to the end of all."""
        received = b""
        while end not in received and (data := await self.read()):
            received += data
        return received


class World:
    """Names, addresses, and who listens there."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.asked: list[str] = []  # names that were resolved
        self.dialled: list[tuple[str, int]] = []
        self.received: list[bytes] = []  # heads of requests that HTTP servers got
        self._servers: dict[tuple[str, int], asyncio.Server] = {}

    def outside(self, *, private: list[str] | None = None, **limits: float) -> Outside:
        """Return it as a proxy sees it."""
        limits = {"head_timeout_s": 5, "resolve_timeout_s": 5, "connect_timeout_s": 2, **limits}
        return Outside(OperatorRules.parse(private or []), self.resolve, self.dial, ProxyLimits(**limits))

    async def resolve(self, host: str) -> list[IPv4Address]:
        self.asked.append(host)
        if host == "silent.test":
            await asyncio.sleep(60)
        if host not in self.names:
            raise dialer.Unresolved(f"{host} has no IPv4 address")
        return [IPv4Address(address) for address in self.names[host]]

    async def dial(self, address: IPv4Address, port: int, timeout_s: float) -> SocketStream:
        self.dialled.append((str(address), port))
        server = self._servers.get((str(address), port))
        if server is None:
            raise ConnectionRefusedError
        return await dialer.dial(IPv4Address("127.0.0.1"), server.sockets[0].getsockname()[1], timeout_s)

    async def serve(self, address: str, port: int, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        """Let somebody listen."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        self._servers[address, port] = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)

    async def serve_http(
        self, address: str, port: int, answer: bytes | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Let a server listen that answers each connection once: as given, or with the address and the body it got."""

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            self.received.append(head)
            body = b""
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    body = await reader.readexactly(int(line.split(b":")[1]))
            text = f"{address} got {body.decode()!r}\n".encode()
            default = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Server: %s\r\n\r\n%s"
            writer.write(answer or default % (len(text), address.encode(), text))
            await writer.drain()

        await self.serve(address, port, handler, tls)

    async def serve_echo(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Let a server listen that says what it hears."""

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

        await self.serve(address, port, handler, tls)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
