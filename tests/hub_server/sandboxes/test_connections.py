"""Connections to nodes: kept open, taken again, and given up where nobody answers or somebody answers oddly."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hub_server.sandboxes.connections import Address, Connections, NoAnswer

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """A server on loopback that says what a test wants it to."""

    def __init__(self, talk: Talk) -> None:
        self.talk, self.connections, self.requests = talk, 0, list[bytes]()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Address]:
        """Serve for the time of the block."""

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self.talk(reader, writer)
            writer.close()

        server = await asyncio.start_server(meet, "127.0.0.1", 0)
        async with server:
            yield Address.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def hear(self, reader: asyncio.StreamReader) -> None:
        """Read one request."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))


async def ask(connections: Connections, address: Address, timeout_s: float = 5, body: bytes = b"") -> tuple[int, bytes]:
    answered = await connections.send(address, "POST", "/path", bearer="secret", body=body, timeout_s=timeout_s)
    return answered.status, answered.body


async def test_requests_go_over_one_connection_one_after_the_other() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await peer.hear(reader)
            writer.write(WELL)

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        for _ in range(3):
            assert await ask(connections, address, body=json.dumps({"a": 1}).encode()) == (200, b"ok")
        assert peer.connections == 1
        assert peer.requests[0].startswith(b"POST /path HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nAuthorization: Bearer secret\r\n" in peer.requests[0]
        assert peer.requests[0].endswith(b'{"a": 1}')
        connections.close()


async def test_requests_at_once_have_a_connection_each() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.hear(reader)
        await asyncio.sleep(0.05)
        writer.write(WELL)

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        assert await asyncio.gather(*(ask(connections, address) for _ in range(10))) == [(200, b"ok")] * 10
        assert peer.connections == 10


async def test_answers_come_in_pieces_in_chunks_and_without_a_body() -> None:
    answers = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy",
    ]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await peer.hear(reader)
            for place in range(0, len(answer), 7):
                writer.write(answer[place : place + 7])
                await asyncio.sleep(0)

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        told = [await ask(connections, address) for _ in answers]
    assert told == [(200, b"abc"), (204, b""), (503, b"busy")]
    assert peer.connections == 1


async def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.hear(reader)
        writer.write(WELL)
        if peer.connections > 1:
            await reader.read()

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        assert await ask(connections, address) == (200, b"ok")
        assert await ask(connections, address) == (200, b"ok")
        assert peer.connections == 2
        connections.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"", "the connection was closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "the connection was closed"),
    ],
)
async def test_what_is_no_answer_is_none(said: bytes, words: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.hear(reader)
        writer.write(said)

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        with pytest.raises(NoAnswer, match=words):
            await ask(connections, address)
        assert peer.connections == 1, "what may have been done is not asked for twice"


async def test_a_late_answer_is_never_taken_for_that_of_the_next_request() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await peer.hear(reader)
        if peer.connections == 1:
            await asyncio.sleep(0.3)
        writer.write(WELL)

    peer, connections = Peer(talk), Connections()
    async with peer.running() as address:
        with pytest.raises(NoAnswer, match="in time"):
            await ask(connections, address, timeout_s=0.1)
        assert await ask(connections, address) == (200, b"ok")
        assert peer.connections == 2


async def test_where_nobody_listens_there_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        await ask(Connections(), Address.of("http://127.0.0.1:9"))
    with pytest.raises(NoAnswer):
        await ask(Connections(), Address.of("http://no-such-host.invalid:80"))


def test_an_address_is_read_from_a_url() -> None:
    assert Address.of("https://node.example/base/") == Address("node.example", 443, True, "/base")
    assert Address.of("http://[::1]:80").host_header == "[::1]:80"
