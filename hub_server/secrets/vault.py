"""Sealing values: AES-256-GCM under the key of the hub, bound to the row that holds them."""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_FORMAT = b"\x01"
_NONCE_BYTES = 12


class WrongKey(Exception):
    """A value was sealed with another key, for another row, or was changed since."""


class Vault:
    """Seals and opens values under one key.

    Each value gets a random nonce of 96 bits, which is sound for many more values than a hub will hold. `place` names
    the row: a sealed value that was moved to another one does not open there.
    """

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._cipher = AESGCM(key)
        self.fingerprint = fingerprint_of(key)

    def seal(self, place: str, value: str) -> bytes:
        """Return `value` encrypted for the row `place`."""
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, value.encode(), place.encode())

    def open(self, place: str, sealed: bytes) -> str:
        """Return the value that was sealed for the row `place`.

        Raises:
            WrongKey: the key or the row is another, or the bytes were changed.
        """
        start = len(_FORMAT) + _NONCE_BYTES
        if sealed[:1] != _FORMAT:
            raise WrongKey(place)
        try:
            return self._cipher.decrypt(sealed[1:start], sealed[start:], place.encode()).decode()
        except InvalidTag:
            raise WrongKey(place) from None


def fingerprint_of(key: bytes) -> str:
    """Return by what a key is recognised; nothing about the key follows from it."""
    return hmac.digest(key, b"fingerprint of a secrets key", hashlib.sha256)[:16].hex()
