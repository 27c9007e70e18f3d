"""What all routes of the embedded server have in common: how they refuse, how they name the policy's version."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.protocol import error_body

POLICY_VERSION_HEADER = "X-Policy-Version"
"""Names the policy version of the last token of an answer; the body's `policy_versions` has those of first and last."""


def answer(body: dict[str, Any], completion: Completion) -> JSONResponse:
    """Return the body of a completion, the policy version of its last token in a header."""
    version = completion.versions[-1] if completion.versions else None
    return JSONResponse(body, headers={} if version is None else {POLICY_VERSION_HEADER: str(version)})


def refusal(error: Exception | str, *, status: int = 400, kind: str = "invalid_request_error") -> JSONResponse:
    """Return an error in OpenAI's shape, its reason in one line."""
    return JSONResponse(error_body(one_line(error), kind), status_code=status)


def one_line(error: Exception | str) -> str:
    """Return the reason of a refusal in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"
    return str(error)
