"""Every request is counted, timed and logged, without anything that could be a secret.

Of the path only the parts named here are shown: an upload URL carries its right in the path. Query strings, headers and
forms are never looked at, and a path that leads nowhere is not shown at all.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hub_server.operation.logs import log, request_id
from hub_server.operation.metrics import Metrics

_SHOWN = (
    "owner", "name", "version", "project", "filename", "sha256", "environment_id", "evaluation_id", "wheel_id",
    "version_id", "identity", "slug", "team", "team_id", "user_id",
)  # fmt: skip
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_OF_MONITORS = frozenset(["/healthz", "/readyz", "/metrics"])
_HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
NO_ROUTE = "(no route)"


@dataclass
class Observed:
    """What is known of one request when its answer is out."""

    method: str
    route: str = NO_ROUTE
    status: int = 0  # 0 until an answer begins
    duration_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0


class ObservedRequests:
    """Watches requests go by. An id that a proxy sends as X-Request-ID is kept, and each answer carries its own."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, then note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identifier = _identifier(scope)
        # Each request is a task of its own, so that this is nobody else's.
        request_id.set(identifier)
        scope.setdefault("state", {})
        seen = Observed(method=scope["method"])
        started = time.perf_counter()

        async def counted() -> Message:
            message = await receive()
            seen.bytes_in += len(message.get("body", b""))
            return message

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (_HEADER, identifier.encode())]}
            elif seen.method != "HEAD":
                seen.bytes_out += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except Exception:
            seen.status = 500
            raise
        finally:
            seen.duration_s = time.perf_counter() - started
            self._note(scope, seen)

    def _note(self, scope: Scope, seen: Observed) -> None:
        seen.route = getattr(scope.get("route"), "path", NO_ROUTE)
        seen.status = seen.status or 499  # the client went away before there was an answer
        self._metrics.count(seen.method, seen.route, seen.status, seen.duration_s, seen.bytes_in, seen.bytes_out)
        level = logging.WARNING if seen.status >= 500 else logging.INFO
        if seen.route in _OF_MONITORS and seen.status == 200:
            level = logging.DEBUG
        user = scope["state"].get("user")
        log(
            level,
            "request",
            method=seen.method,
            route=seen.route,
            path=_path(seen.route, scope.get("path_params", {})) if seen.route != NO_ROUTE else None,
            status=seen.status,
            duration_ms=round(seen.duration_s * 1000, 1),
            user=user.slug if user is not None else None,
            bytes_in=seen.bytes_in,
            bytes_out=seen.bytes_out,
            client=scope["client"][0] if scope.get("client") else None,
        )


def _path(route: str, values: dict[str, object]) -> str:
    """Return the route with the parts filled in that are no secret."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return quote(str(values.get(name, "")))[:200] if name in _SHOWN else match[0]

    return _PARAMETER.sub(part, route)


def _identifier(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == _HEADER and _GOOD_ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)
