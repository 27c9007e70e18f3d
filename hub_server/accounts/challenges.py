"""The login challenge: a client asks, a person approves in a browser, the client alone can read the key it gets.

The key travels as RSA-OAEP ciphertext (MGF1 and hash SHA-256) for a key pair that only the waiting client has.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from sqlalchemy import delete
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.keys import mint_key
from hub_server.accounts.tables import LoginChallenge, User
from hub_server.database import now
from hub_server.errors import Conflict, Malformed, NotAuthenticated, NotFound
from hub_server.signing import hash_secret

LIFETIME = timedelta(minutes=10)
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192
# Letters and digits that are not mistaken for each other: people compare the code on the page with their terminal's.
_CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(frozen=True)
class NewChallenge:
    """What a client gets that asks to log in: the code for the page, and the token to ask after the result with."""

    code: str
    status_token: str


def create_challenge(session: Session, public_key_pem: str, *, asked_from: str) -> NewChallenge:
    """Store a challenge for the client that holds the private half of `public_key_pem`.

    Raises:
        Malformed: the key is not an RSA public key in PEM of a size that is used.
    """
    _load_public_key(public_key_pem)
    session.execute(delete(LoginChallenge).where(LoginChallenge.expires_at < now()))
    letters = [secrets.choice(_CODE_ALPHABET) for _ in range(16)]
    code = "-".join("".join(letters[start : start + 4]) for start in range(0, 16, 4))
    status_token = secrets.token_urlsafe(32)
    session.add(
        LoginChallenge(
            code=code,
            status_token_hash=hash_secret(status_token),
            public_key_pem=public_key_pem,
            asked_from=asked_from[:100],
            expires_at=now() + LIFETIME,
        )
    )
    return NewChallenge(code, status_token)


def result_of(session: Session, code: str, status_token: str) -> str | None:
    """Return the encrypted key once somebody approved, None while it is pending.

    Raises:
        NotFound: there is no such challenge, or it expired or was denied.
        NotAuthenticated: the token is not the one that came with the challenge.
    """
    challenge = find_challenge(session, code)
    if not hmac.compare_digest(challenge.status_token_hash, hash_secret(status_token)):
        raise NotAuthenticated("this status token does not belong to this login challenge")
    return challenge.encrypted_key


def find_challenge(session: Session, code: str) -> LoginChallenge:
    """Return the challenge that waits under `code`.

    Raises:
        NotFound: there is none, or it expired or was denied.
    """
    challenge = session.get(LoginChallenge, code.strip().upper())
    if challenge is None or challenge.expires_at <= now():
        raise NotFound("this login challenge expired or does not exist; run `prime login` again")
    return challenge


def approve(session: Session, code: str, user: User) -> None:
    """Mint an API key for `user` and leave it, encrypted, for the client that asked.

    Raises:
        NotFound: there is no such challenge.
        Conflict: it was approved before.
    """
    challenge = find_challenge(session, code)
    if challenge.encrypted_key is not None:
        raise Conflict("this login was approved before; run `prime login` again for another")
    name = f"prime login from {challenge.asked_from or 'an unknown address'}"
    # Approved with a key, a login gets at most what that key has.
    using = user.api_key
    scopes, expires_at = (using.scopes, using.expires_at) if using is not None else (None, None)
    key = mint_key(session, user, name=name, scopes=scopes, expires_at=expires_at)
    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
    ciphertext = _load_public_key(challenge.public_key_pem).encrypt(key.encode(), oaep)
    challenge.encrypted_key = base64.b64encode(ciphertext).decode()
    challenge.approved_by = user.id
    audit.record(session, user, "login.approve", challenge.asked_from)


def deny(session: Session, code: str) -> None:
    """Drop the challenge: the client that waits is told that it expired."""
    session.delete(find_challenge(session, code))


def _load_public_key(pem: str) -> rsa.RSAPublicKey:
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise Malformed("encryptionPublicKey is not a public key in PEM (SubjectPublicKeyInfo)") from None
    if not isinstance(key, rsa.RSAPublicKey) or not _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS:
        raise Malformed(f"encryptionPublicKey must be an RSA key of {_MIN_RSA_BITS} to {_MAX_RSA_BITS} bits")
    return key
