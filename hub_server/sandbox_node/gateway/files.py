"""Files of a sandbox: uploaded, downloaded, and read by parts as text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hub_server.sandbox_node.errors import FileRefused, SandboxError
from hub_server.sandbox_node.gateway.answers import OutputAnswer
from hub_server.sandbox_node.gateway.bodies import FormFile, left
from hub_server.sandbox_node.gateway.refusals import BadRequest
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE

_log = logging.getLogger(__name__)
MOST_READ_BYTES = 10 * MEBIBYTE  # as text, in one answer


async def upload(sandbox: Sandbox, request: Request) -> Response:
    """Write the form's file into the sandbox, as it comes in; parents are made."""
    path = _path(request)
    most_bytes = sandbox.enforcement.limits.file_bytes
    chunks = FormFile(request).chunks()
    first = await anext(chunks, b"")  # a form without the file is refused before anything is written
    size = await sandbox.write_file(path, _followed(first, chunks), most_bytes=most_bytes)
    said = {"success": True, "path": path, "size": size, "timestamp": datetime.now(UTC).isoformat()}
    return JSONResponse(said)


async def _followed(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def download(sandbox: Sandbox, request: Request) -> Response:
    """Answer with the bytes of a file, as they are read."""
    facts, content = await sandbox.open_file(_path(request))
    headers = {"content-type": "application/octet-stream"}
    if facts["size"]:  # files of /proc say 0 and hold more
        headers["content-length"] = str(facts["size"])
    return FileAnswer(content, facts["size"] or None, headers)


class FileAnswer(Response):
    """A file as it is read. Where it cannot be read to its end, the connection breaks, so that no client is misled."""

    def __init__(self, content: AsyncGenerator[bytes, None], size: int | None, headers: dict[str, str]) -> None:
        super().__init__()
        self.raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._content, self._left = content, size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        leaving = asyncio.ensure_future(left(receive))
        try:
            async for chunk in self._content:
                # What was appended since the size was told is not sent.
                piece = chunk if self._left is None else chunk[: self._left]
                if self._left is not None:
                    self._left -= len(piece)
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if self._left == 0 or leaving.done():
                    break
        except SandboxError as error:
            _log.warning("a download broke off: %s", error)
            return
        finally:
            leaving.cancel()
            await self._content.aclose()
        if not self._left:
            await send({"type": "http.response.body", "body": b""})


async def read_file(sandbox: Sandbox, request: Request) -> Response:
    """Answer with a part of a file as text. A negative offset counts from the end."""
    path, offset, length = _path(request), _number(request, "offset") or 0, _number(request, "length")
    if length is not None and length < 0:
        raise BadRequest("length: it cannot be negative")
    most = MOST_READ_BYTES if length is None else min(length, MOST_READ_BYTES)
    facts, chunks = await sandbox.open_file(path, offset, most + 1 if length is None else most)
    content = bytearray()
    async for chunk in chunks:
        content += chunk
    if len(content) > most:
        raise FileRefused(
            "too_large",
            f"{path} has {facts['size']} bytes, and {most} are read at most: read a part with offset and length, "
            "or download it",
        )
    total = max(facts["size"], facts["offset"] + len(content))  # files of /proc say 0, and others grow
    return OutputAnswer(
        {
            "content": content,
            "size": len(content),
            "total_size": total,
            "offset": facts["offset"],
            "truncated": len(content) < total,
        }
    )


def _path(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path or "\0" in path:
        raise BadRequest("path: the path of a file in the sandbox is needed")
    return path


def _number(request: Request, name: str) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return None
    try:
        return int(given)
    except ValueError:
        raise BadRequest(f"{name}: {given[:40]!r} is no whole number") from None
