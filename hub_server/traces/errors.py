"""How routes of traces refuse: `{"error": {"code", "message"}}`, with the codes that the published SDK knows."""

from __future__ import annotations

import re

from hub_server.errors import Refusal

_PATHS = re.compile(r"/api/v1/(traces|episodes|runs)(/|$)")
_CODES = {401: "unauthenticated", 403: "forbidden", 413: "upload_too_large", 429: "rate_limited"}


class TraceRefusal(Refusal):
    """A refusal with a code by which clients decide what to do; most are 400."""

    def __init__(self, code: str, detail: str, status: int = 400) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status


def is_about_traces(path: str) -> bool:
    """Say whether the routes of this path refuse in the way of traces."""
    return _PATHS.match(path) is not None


def envelope(error: Refusal) -> dict[str, object]:
    """Return the body of a refusal."""
    code = error.code if isinstance(error, TraceRefusal) else _CODES.get(error.status, "not_found")
    return {"error": {"code": code, "message": error.detail}}
