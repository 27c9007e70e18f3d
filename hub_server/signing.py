"""Signed tokens that carry a right by themselves: upload URLs, index URLs, forms; and how random secrets are kept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import Any


def hash_secret(text: str) -> str:
    """Return the hash under which a random secret is kept; 256 random bits need no slow hash."""
    return hashlib.sha256(text.encode()).hexdigest()


class Signer:
    """Makes and checks tokens. Each names its purpose, so that one kind never passes for another."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, payload: dict[str, Any], *, valid_s: int) -> str:
        """Return a URL-safe token for `payload` that expires after `valid_s` seconds."""
        body = json.dumps({**payload, "exp": int(time.time()) + valid_s}, separators=(",", ":")).encode()
        return f"{_encode(body)}.{_encode(self._mac(purpose, body))}"

    def open(self, purpose: str, token: str) -> dict[str, Any] | None:
        """Return the payload of a token; None when it is forged, expired or made for another purpose."""
        try:
            body, mac = (_decode(part) for part in token.split("."))
        except (ValueError, binascii.Error):
            return None
        if not hmac.compare_digest(mac, self._mac(purpose, body)):
            return None
        payload: dict[str, Any] = json.loads(body)
        return payload if payload["exp"] >= time.time() else None

    def fingerprint(self, purpose: str, text: str) -> str:
        """Return a keyed hash of `text`, for forms that must come from a page of ours."""
        return _encode(self._mac(purpose, text.encode()))

    def _mac(self, purpose: str, body: bytes) -> bytes:
        return hmac.digest(self._secret, purpose.encode() + b"\0" + body, hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
