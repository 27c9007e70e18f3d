"""What happens to every request before it is routed."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

UPLOAD_PREFIX = "/api/v1/uploads/"
TRACES = re.compile(r"/api/v1/traces/?")
LEGACY_UPLOAD = re.compile(r"/index/[^/]+/legacy/")
SAMPLES = re.compile(r"/api/v1/evaluations/[^/]+/samples/?")
MAX_BODY_BYTES = 4 * 1024**2
# Clients fill batches of samples up to 25 MiB, counted without the envelope.
MAX_SAMPLES_BYTES = 26 * 1024**2


class OneSpelling:
    """Takes the slash off the end of API paths: clients send both forms, and not all follow a redirect with a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its one spelling."""
        if scope["type"] == "http" and scope["path"].startswith("/api/v1/") and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/")}
        await self._app(scope, receive, send)


class BoundedBody:
    """Refuses large bodies everywhere but at upload URLs, which stream to disk and have limits of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and stop reading it when it grows too large."""
        if scope["type"] != "http" or _streams_to_disk(scope["path"]):
            await self._app(scope, receive, send)
            return
        most = MAX_SAMPLES_BYTES if SAMPLES.fullmatch(scope["path"]) else MAX_BODY_BYTES
        too_large = f"the body of this request is over {most} bytes"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            await JSONResponse({"detail": too_large}, status_code=413)(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, too_large)
            return message

        await self._app(scope, bounded, send)


def _streams_to_disk(path: str) -> bool:
    return path.startswith(UPLOAD_PREFIX) or any(form.fullmatch(path) for form in (LEGACY_UPLOAD, TRACES))
