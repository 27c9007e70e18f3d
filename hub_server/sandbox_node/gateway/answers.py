"""JSON with the output of programs in it, written by pieces: to decode and quote megabytes at once would hold up all
other sandboxes of the node meanwhile."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE_BYTES = 64 * 1024


class OutputAnswer(Response):
    """An object whose values are JSON, or bytes: those are UTF-8 text, with replacements for what is none."""

    media_type = "application/json"

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__()
        self.raw_headers = [(b"content-type", b"application/json")]
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, in one piece when it is short."""
        pending = bytearray()
        started = False
        for piece in _written(self._content):
            pending += piece
            if len(pending) >= PIECE_BYTES:
                if not started:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    started = True
                await send({"type": "http.response.body", "body": bytes(pending), "more_body": True})
                pending.clear()
                await asyncio.sleep(0)
        if not started:
            headers = [*self.raw_headers, (b"content-length", str(len(pending)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(pending)})


def _written(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes | bytearray):
        yield b'"'
        yield from _quoted(value)
        yield b'"'
    elif isinstance(value, Mapping):
        for number, (name, part) in enumerate(value.items()):
            yield (", " if number else "{").encode() + json.dumps(name).encode() + b": "
            yield from _written(part)
        yield b"}" if value else b"{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, part in enumerate(value):
            yield b", " if number else b"["
            yield from _written(part)
        yield b"]" if value else b"[]"
    else:
        yield json.dumps(value).encode()


def _quoted(data: bytes | bytearray) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(data), PIECE_BYTES):
        text = decoder.decode(bytes(data[start : start + PIECE_BYTES]), start + PIECE_BYTES >= len(data))
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
