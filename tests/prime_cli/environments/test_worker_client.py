"""The client with which environments ask models."""

from __future__ import annotations

import asyncio
import json

import pytest

from prime_cli.environments.worker_client import model_client

ANSWER = {
    "id": "x", "object": "chat.completion", "created": 0, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}  # fmt: skip


async def asked_of(base_url: str, port: int) -> str:
    """Ask the model at `base_url` and return the first line of the request that came to the server on `port`."""
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines.append(head.splitlines()[0])
        body = json.dumps(ANSWER).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    client = model_client({"base_url": base_url, "api_key": "key", "headers": {}})
    try:
        reply = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert reply.choices[0].message.content == "hello"
    finally:
        await client.close()
        server.close()
    return lines[0]


@pytest.mark.parametrize(
    ("host", "excepted", "target"),
    [("models.invalid", "", "http://models.invalid"), ("127.0.0.1:{port}", "127.0.0.1", "")],
    ids=["through the proxy", "past the proxy"],
)
def test_requests_go_through_the_proxy_that_the_environment_names_and_past_it_to_excepted_hosts(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int, host: str, excepted: str, target: str
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("no_proxy", excepted)
    url = f"http://{host.format(port=unused_tcp_port)}/v1"
    assert asyncio.run(asked_of(url, unused_tcp_port)) == f"POST {target}/v1/chat/completions HTTP/1.1"
