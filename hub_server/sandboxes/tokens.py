"""Tokens that open one sandbox on one node: the hub makes them, and the node checks them without asking the hub.

A token is `SANDBOX.EXPIRY.MAC`: whom it opens, until when (seconds since 1970), and an HMAC-SHA256 over both with the
secret that the hub and the node share. It says nothing of the user, so a node learns no more than it needs.

    Refused
        Wrong            made with another secret, damaged, or no token at all
        Expired          it was good once; the hub gives another one
        ForAnother       a good token of another sandbox
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

LIFETIME_S = 3600  # clients ask for another one a minute before its end


class Refused(Exception):
    """A token opens nothing; its text is one line for the caller."""


class Wrong(Refused):
    """Not a token of this node."""


class Expired(Refused):
    """A token whose time is over."""


class ForAnother(Refused):
    """A token of another sandbox."""


@dataclass(frozen=True)
class Token:
    """What opens a sandbox, and until when (seconds since 1970)."""

    text: str
    expires_at: int


def make_secret() -> bytes:
    """Return a secret for one node."""
    return secrets.token_bytes(32)


def make_token(secret: bytes, sandbox_id: str, *, lifetime_s: float = LIFETIME_S, now: float | None = None) -> Token:
    """Return a token that opens one sandbox for a while."""
    expires_at = int((time.time() if now is None else now) + lifetime_s)
    claim = f"{sandbox_id}.{expires_at}"
    return Token(f"{claim}.{_mac(secret, claim)}", expires_at)


def check_token(secret: bytes, token: str, sandbox_id: str, *, now: float | None = None) -> None:
    """Return when the token opens the sandbox.

    Raises:
        Refused: it does not; one of its kinds.
    """
    claim, _, mac = token.rpartition(".")
    if not hmac.compare_digest(_mac(secret, claim).encode(), mac.encode(errors="replace")):
        raise Wrong("this token is not valid here")
    opened, _, expiry = claim.rpartition(".")
    if int(expiry) <= (time.time() if now is None else now):
        raise Expired("this token has expired")
    if opened != sandbox_id:
        raise ForAnother("this token is for another sandbox")


def _mac(secret: bytes, claim: str) -> str:
    return hmac.new(secret, claim.encode(errors="replace"), hashlib.sha256).hexdigest()
