"""The Connect protocol over real HTTP, with methods of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request

from hub_server.sandbox_node.gateway import connect, messages
from hub_server.sandbox_node.gateway.connect import Call, ClientStream, ServerStream, Unary, serve
from hub_server.sandbox_node.gateway.envelopes import MOST_MESSAGE_BYTES, Code, RpcError, envelope
from hub_server.sandbox_node.gateway.refusals import rpc_error
from tests.hub_server.sandbox_node.gateway.loopback import served

PROTO = {"content-type": "application/connect+proto"}
closed: list[str] = []


def said(text: str) -> Any:
    return messages.StartResponse(event={"data": {"stdout": text.encode()}})


async def repeat(call: Call, message: Any) -> AsyncIterator[Any]:
    for argument in message.command.args:
        yield said(argument)


async def hang(call: Call, message: Any) -> AsyncIterator[Any]:
    try:
        yield said("started")
        await asyncio.sleep(3600)
    finally:
        closed.append(message.command.cmd)


async def flood(call: Call, message: Any) -> AsyncIterator[Any]:
    try:
        while True:
            yield said("x" * 65536)
            closed.append("piece")
    finally:
        closed.append("closed")


async def refuse(call: Call, message: Any) -> AsyncIterator[Any]:
    yield said("first")
    raise RpcError(Code.NOT_FOUND, "it is gone")


async def fault(call: Call, message: Any) -> AsyncIterator[Any]:
    yield said("first")
    raise ZeroDivisionError


async def echo(call: Call, message: Any) -> Any:
    if message.session.session_uuid == "slow":
        await asyncio.sleep(3600)
    return messages.ListResponse(sessions=[{"pid": message.session.pid, "session_uuid": message.session.session_uuid}])


async def count(call: Call, requests: AsyncIterator[Any]) -> Any:
    return messages.ListResponse(sessions=[{"pid": len([one async for one in requests])}])


KEEPALIVE = messages.StartResponse(event={"keepalive": {}})
METHODS = {
    **{
        handler.__name__: ServerStream(messages.StartRequest, handler, KEEPALIVE)
        for handler in (repeat, hang, flood, refuse, fault)
    },
    "echo": Unary(messages.SendInputRequest, echo),
    "count": ClientStream(messages.StreamInputRequest, count),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope, receive, send)
    with contextlib.suppress(ClientDisconnect):
        await serve(METHODS[scope["path"][1:]], lambda: None, rpc_error, request)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    closed.clear()
    async with served(app) as url, httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        yield http


def start(*args: str, cmd: str = "c") -> bytes:
    return envelope(messages.StartRequest(command={"cmd": cmd, "args": args}).SerializeToString())


def taken_apart(body: bytes, kind: Any = messages.StartResponse) -> tuple[list[Any], dict[str, Any]]:
    """The messages of a stream, and how it ended."""
    found, at = [], 0
    while at < len(body):
        flags, length = struct.unpack_from(">BI", body, at)
        payload = body[at + 5 : at + 5 + length]
        at += 5 + length
        if flags == 2:
            assert at == len(body), "nothing follows the end of a stream"
            return found, json.loads(payload)
        found.append(kind.FromString(payload))
    raise AssertionError("the stream has no end")


async def test_a_stream_of_answers_ends_with_an_empty_object(client: httpx.AsyncClient) -> None:
    answer = await client.post("/repeat", content=start("a", "b"), headers=PROTO)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/connect+proto")
    found, end = taken_apart(answer.content)
    assert [one.event.data.stdout for one in found] == [b"a", b"b"]
    assert end == {}


async def test_json_is_spoken_too(client: httpx.AsyncClient) -> None:
    body = envelope(json.dumps({"command": {"cmd": "c", "args": ["a"]}, "unknown": 1}).encode())
    answer = await client.post("/repeat", content=body, headers={"content-type": "application/connect+json"})
    (length,) = struct.unpack(">I", answer.content[1:5])
    assert json.loads(answer.content[5 : 5 + length]) == {"event": {"data": {"stdout": "YQ=="}}}
    unary = await client.post("/echo", json={"session": {"sessionUuid": "u"}})
    assert unary.json() == {"sessions": [{"pid": 0, "sessionUuid": "u"}]}


async def test_an_error_after_answers_follows_them(client: httpx.AsyncClient) -> None:
    found, end = taken_apart((await client.post("/refuse", content=start(), headers=PROTO)).content)
    assert [one.event.data.stdout for one in found] == [b"first"]
    assert end == {"error": {"code": "not_found", "message": "it is gone"}}


async def test_a_fault_of_ours_shows_nothing_of_itself(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    _, end = taken_apart((await client.post("/fault", content=start(), headers=PROTO)).content)
    assert end["error"]["code"] == "internal"
    assert "ZeroDivision" not in end["error"]["message"]
    assert "ZeroDivisionError" in caplog.text


async def test_compressed_requests_are_read(client: httpx.AsyncClient) -> None:
    packed = envelope(gzip.compress(start("a")[5:]), 1)
    headers = {**PROTO, "connect-content-encoding": "gzip"}
    found, end = taken_apart((await client.post("/repeat", content=packed, headers=headers)).content)
    assert ([one.event.data.stdout for one in found], end) == ([b"a"], {})
    plain = gzip.compress(messages.SendInputRequest(session={"pid": 5}).SerializeToString())
    unary = await client.post(
        "/echo", content=plain, headers={"content-type": "application/proto", "content-encoding": "gzip"}
    )
    assert messages.ListResponse.FromString(unary.content).sessions[0].pid == 5


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, "invalid_argument"),
        (start()[:-1], {}, "invalid_argument"),
        (start() + start(), {}, "invalid_argument"),
        (envelope(b"\xff\xff\xff"), {}, "invalid_argument"),
        (envelope(b"", 2), {}, "invalid_argument"),
        (envelope(b"x", 1), {}, "internal"),
        (envelope(b"x", 1), {"connect-content-encoding": "gzip"}, "invalid_argument"),
        (envelope(gzip.compress(b"x" * 99, mtime=0)[:-5], 1), {"connect-content-encoding": "gzip"}, "invalid_argument"),
        (
            envelope(gzip.compress(b"\0" * (MOST_MESSAGE_BYTES + 1), 1, mtime=0), 1),
            {"connect-content-encoding": "gzip"},
            "resource_exhausted",
        ),
        (struct.pack(">BI", 0, MOST_MESSAGE_BYTES + 1), {}, "resource_exhausted"),
        (start(), {"connect-content-encoding": "zstd"}, "unimplemented"),
        (start(), {"connect-protocol-version": "2"}, "invalid_argument"),
        (start(), {"connect-timeout-ms": "-1"}, "invalid_argument"),
        (start(), {"connect-timeout-ms": "12345678901"}, "invalid_argument"),
    ],
)
async def test_a_request_that_breaks_the_framing_is_refused(
    client: httpx.AsyncClient, body: bytes, headers: dict[str, str], code: str
) -> None:
    answer = await client.post("/repeat", content=body, headers={**PROTO, **headers})
    found, end = taken_apart(answer.content)
    assert (answer.status_code, found, end["error"]["code"]) == (200, [], code)


async def test_what_is_no_call_is_refused_by_its_status(client: httpx.AsyncClient) -> None:
    assert (await client.get("/repeat")).status_code == 405
    refused = await client.post("/repeat", content=start(), headers={"content-type": "application/proto"})
    assert refused.status_code == 415
    assert "application/connect+proto" in refused.headers["accept-post"]


async def test_a_call_ends_when_its_time_is_over(client: httpx.AsyncClient) -> None:
    timed = {**PROTO, "connect-timeout-ms": "50"}
    found, end = taken_apart((await client.post("/hang", content=start(), headers=timed)).content)
    assert [one.event.data.stdout for one in found] == [b"started"]
    assert end["error"]["code"] == "deadline_exceeded"
    assert closed == ["c"]
    slow = messages.SendInputRequest(session={"session_uuid": "slow"}).SerializeToString()
    headers = {"content-type": "application/proto", "connect-timeout-ms": "50"}
    refused = await client.post("/echo", content=slow, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (504, "deadline_exceeded")


async def test_a_silent_stream_is_kept_alive(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "KEEPALIVE_S", 0.05)
    timed = {**PROTO, "connect-timeout-ms": "300"}
    found, _ = taken_apart((await client.post("/hang", content=start(), headers=timed)).content)
    assert [one.event.WhichOneof("event") for one in found][:3] == ["data", "keepalive", "keepalive"]


async def test_a_handler_is_closed_when_its_client_goes_away(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/hang", content=start(cmd="left"), headers=PROTO) as answer:
        await anext(answer.aiter_raw())
        assert closed == []
    async with asyncio.timeout(5):
        while closed != ["left"]:
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_stops_the_handler(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/flood", content=start(), headers=PROTO):
        await asyncio.sleep(0.3)
        before = len(closed)
        await asyncio.sleep(0.3)
        assert len(closed) == before, "it waits"
        assert before < 500, "little is held for a client that does not read"
    async with asyncio.timeout(5):
        while "closed" not in closed:
            await asyncio.sleep(0.01)


async def test_a_stream_of_requests_has_one_answer(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        body = envelope(messages.StreamInputRequest(keepalive={}).SerializeToString()) * 3
        for at in range(0, len(body), 4):  # envelopes split anywhere
            yield body[at : at + 4]

    answer = await client.post("/count", content=pieces(), headers=PROTO)
    found, end = taken_apart(answer.content, messages.ListResponse)
    assert ([one.sessions[0].pid for one in found], end) == ([3], {})
