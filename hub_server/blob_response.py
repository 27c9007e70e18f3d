"""Answers with a blob, whole or in part, from wherever it lies.

What lies in a store elsewhere goes through the hub: whoever may read it need not reach the store, and nobody gets a URL
that outlives their right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from hub_server.blobs import BlobStore

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def blob_response(
    blobs: BlobStore,
    sha256: str,
    request: Request,
    *,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    filename: str | None = None,
) -> Response:
    """Return a blob as an answer to GET or HEAD; one `Range` of bytes is honoured, several are answered whole."""
    path = blobs.local_path(sha256)
    if path is not None:
        return FileResponse(path, media_type=media_type, headers=headers, filename=filename)
    size = blobs.size(sha256)
    answered = {"ETag": f'"{sha256}"', **(headers or {}), "Accept-Ranges": "bytes"}
    if filename is not None:
        answered["Content-Disposition"] = f"attachment; filename*=utf-8''{quote(filename)}"
    wanted = request.headers.get("range")
    if wanted is not None and request.headers.get("if-range") not in (None, answered["ETag"]):
        wanted = None  # the client has a part of other bytes
    start, end, status = 0, size, 200
    if wanted is not None and (match := _RANGE.fullmatch(wanted.replace(" ", ""))) and match[0] != "bytes=-":
        start, end = _bounds(match[1], match[2], size)
        if start >= end:
            return Response(status_code=416, headers={**answered, "Content-Range": f"bytes */{size}"})
        answered["Content-Range"], status = f"bytes {start}-{end - 1}/{size}", 206
    answered["Content-Length"] = str(end - start)
    if request.method == "HEAD":
        return Response(status_code=status, headers=answered, media_type=media_type)
    part = blobs.stream(sha256, start, end - start)
    return StreamingResponse(part, status_code=status, headers=answered, media_type=media_type)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return where a range begins and ends, the end left out; `-N` means the last N bytes."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size
