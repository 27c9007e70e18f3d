"""How what goes wrong is told: as HTTP answers with a `detail`, and as codes of the Connect protocol.

BadRequest   the request itself is wrong; a status and one line
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.responses import JSONResponse, Response

from hub_server.sandbox_node.errors import (
    FileProblem,
    FileRefused,
    Gone,
    NoSession,
    NotPossible,
    NotStarted,
    SandboxError,
    SessionTaken,
)
from hub_server.sandbox_node.gateway.access import NoSandbox
from hub_server.sandbox_node.gateway.envelopes import Code, RpcError
from hub_server.sandboxes.tokens import ForAnother, Refused

_log = logging.getLogger(__name__)

FILE_STATUS: dict[FileProblem, int] = {
    "not_found": 404,
    "not_a_file": 400,
    "is_a_directory": 400,
    "denied": 403,
    "too_large": 413,
    "no_space": 507,
    "other": 400,
}


class BadRequest(Exception):
    """A request that no sandbox could answer."""

    def __init__(self, detail: str, status: int = 422) -> None:
        super().__init__(detail)
        self.detail, self.status = detail, status


def http_answer(error: Exception, *, command: bool) -> Response:
    """Return the answer for what went wrong.

    Clients learn that a sandbox is gone in two ways: of a command by 502 and `sandbox_not_found`, of a file by 410 and
    `sandbox_terminated`. Both then ask the hub why.
    """
    if isinstance(error, BadRequest):
        return _json(error.status, error.detail)
    if isinstance(error, ForAnother):
        return _json(403, str(error))
    if isinstance(error, Refused):
        return JSONResponse({"detail": str(error)}, 401, {"www-authenticate": "Bearer"})
    if isinstance(error, NoSandbox | Gone):
        if command:
            return _json(502, error.detail, error="sandbox_not_found")
        return _json(410, error.detail, error="sandbox_terminated")
    if isinstance(error, NotStarted):
        return _json(409, error.detail)
    if isinstance(error, FileRefused):
        return _json(FILE_STATUS.get(error.reason, 400), error.detail, reason=error.reason)
    if isinstance(error, SandboxError):
        return _json(400, error.detail, hint=error.hint)
    _log.error("a request failed", exc_info=error)
    return _json(500, "this is a fault of the server; its log says more")


def rpc_error(error: Exception) -> RpcError:
    """Return what went wrong as an error of the Connect protocol."""
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return RpcError(code, str(error))
    _log.error("a call failed", exc_info=error)
    return RpcError(Code.INTERNAL, "this is a fault of the server; its log says more")


_CODES: list[tuple[type[Exception] | tuple[type[Exception], ...], Code]] = [
    (ForAnother, Code.PERMISSION_DENIED),
    (Refused, Code.UNAUTHENTICATED),
    ((NoSandbox, Gone, NoSession), Code.NOT_FOUND),
    (NotStarted, Code.UNAVAILABLE),
    ((SessionTaken, NotPossible), Code.FAILED_PRECONDITION),
    (SandboxError, Code.INVALID_ARGUMENT),
]


def _json(status: int, detail: str, **more: Any) -> Response:
    return JSONResponse(
        {"detail": detail, **{name: value for name, value in more.items() if value is not None}}, status
    )
