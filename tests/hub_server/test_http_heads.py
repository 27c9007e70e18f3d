"""What a client may send before it is known who it is: a head of some size, within some time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from hub_server.operation import http_heads
from hub_server.operation.http_heads import MOST_HEAD_BYTES, BoundedHeads

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def app(scope, receive, send) -> None:
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        fields = len(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d fields, %d bytes\n" % (fields, size)})

    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", http=BoundedHeads)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    yield server.servers[0].sockets[0].getsockname()[1]
    for listening in server.servers:
        listening.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_on(connection: Connection, piece: bytes, times: int) -> int:
    """Send a piece again and again until the server has enough, and return how much it took."""
    sent = 0
    try:
        for _ in range(times):
            connection[1].write(piece)
            await connection[1].drain()
            sent += len(piece)
            await asyncio.sleep(0)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"y" * 10_000),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: 1\r\n" * 2_000),
        (b"GET /", b"y" * 10_000),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: 1\r\n" * 2_000),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"y" * 10_000),
    ],
)
async def test_a_head_without_end_is_cut_off_and_takes_no_memory(port: int, begin: bytes, piece: bytes) -> None:
    async with connected(port) as connection:
        connection[1].write(begin)
        sent = await asyncio.wait_for(send_on(connection, piece, 5_000), 20)
        assert sent < 20_000_000, "what the server does not take fills the buffers of the kernel at most"
        try:
            answer = await asyncio.wait_for(connection[0].read(), 10)
        except ConnectionResetError:
            answer = b""
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


async def test_heads_below_the_bound_and_bodies_of_any_size_pass_again_and_again(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (MOST_HEAD_BYTES - 20_000)
    async with connected(port) as (reader, writer):
        for _ in range(3):
            writer.write(head + b"\r\nContent-Length: 1000000\r\n\r\n" + b"z" * 1_000_000)
            assert (await asyncio.wait_for(reader.readuntil(b"bytes\n"), 20)).endswith(b"3 fields, 1000000 bytes\n")
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"1\r\nz\r\n" * 50_000 + b"0\r\n\r\n")
            assert b"2 fields, 50000 bytes\n" in await asyncio.wait_for(reader.readuntil(b"bytes\n"), 20)


async def test_a_head_that_does_not_come_ends_the_connection_and_a_slow_body_does_not(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_heads, "HEAD_TIMEOUT_S", 0.2)
    for begin in (b"", b"GET / HTTP/1.1\r\nHost:"):
        async with connected(port) as (reader, writer):
            writer.write(begin)
            assert await asyncio.wait_for(reader.read(), 5) == b""
    async with connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        await asyncio.sleep(0.4)
        writer.write(b"b")
        assert b"2 bytes" in await asyncio.wait_for(reader.readuntil(b"bytes\n"), 5)
