"""JSON that is written by pieces is the same JSON, and holds nobody up."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import pytest

from hub_server.sandbox_node.gateway.answers import PIECE_BYTES, OutputAnswer


async def sent(content: dict[str, Any]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """The headers and the pieces of an answer."""
    said: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        said.append(message)

    await OutputAnswer(content)({"type": "http"}, None, send)  # type: ignore[arg-type]
    assert said[0]["type"] == "http.response.start"
    assert [message.get("more_body", False) for message in said[1:]] == [True] * (len(said) - 2) + [False]
    return dict(said[0]["headers"]), [message["body"] for message in said[1:]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'quotes " and \\ and \n and \x00 and \x7f',
        "grüß 😀 \u2028".encode(),
        b"no utf-8: \xff\xfe, cut \xe2\x82",
        "ü".encode() * PIECE_BYTES + b"x",  # a letter across the border of two pieces
        b"x" + "😀".encode() * PIECE_BYTES,
        os.urandom(3 * PIECE_BYTES),
    ],
)
async def test_bytes_become_the_text_that_they_are(data: bytes) -> None:
    _, pieces = await sent({"a": data, "b": 1})
    assert json.loads(b"".join(pieces)) == {"a": data.decode(errors="replace"), "b": 1}


async def test_everything_else_is_json_as_usual() -> None:
    content = {"a": [1, 2.5, None, True, 'ü"', [], {}, {"b": []}], "": {"c": {"d": b"e"}}}
    _, pieces = await sent(content)
    assert json.loads(b"".join(pieces)) == {**content, "": {"c": {"d": "e"}}}


async def test_a_short_answer_is_one_piece_with_its_length() -> None:
    headers, pieces = await sent({"stdout": b"hi\n", "exit_code": 0})
    assert headers[b"content-length"] == str(len(pieces[0])).encode()
    assert len(pieces) == 1


async def test_a_long_answer_lets_others_go_on() -> None:
    gaps = []

    async def others() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            gaps.append(time.perf_counter() - before)

    task = asyncio.create_task(others())
    _, pieces = await sent({"stdout": os.urandom(2 * 1024**2)})
    task.cancel()
    assert len(pieces) > 20
    assert len(gaps) > 20
