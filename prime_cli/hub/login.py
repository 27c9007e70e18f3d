"""Logging in: a challenge approved in a browser, or a key that is already there; then who it belongs to."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from prime_cli.core.context import Settings, save_settings
from prime_cli.core.credentials import store_api_key
from prime_cli.core.errors import HubError, PrimeError
from prime_cli.hub.client import HubClient

POLL_INTERVAL_S = 2.0
APPROVAL_TIMEOUT_S = 600.0
_GONE = 404


@dataclass(frozen=True)
class Identity:
    """Who the hub says an API key belongs to."""

    id: str
    slug: str
    name: str
    email: str


@dataclass(frozen=True)
class LoggedIn:
    """A login that worked: as whom, on which hub, and in words where the key is kept."""

    identity: Identity
    base_url: str
    stored_in: str


@dataclass(frozen=True)
class PendingLogin:
    """A challenge that waits for approval at `page`; `code` is what that page shows too."""

    code: str
    page: str
    status_token: str
    private_key: rsa.RSAPrivateKey


def whoami(client: HubClient) -> Identity:
    """Ask the hub who the client's key belongs to.

    Raises:
        HubError: the key is wrong or was revoked.
    """
    data = client.get("/user/whoami").get("data")
    if not isinstance(data, dict):
        raise HubError(f"{client.settings.base_url} does not answer like a hub", hint="see `prime config view`")
    words = {key: str(data.get(key) or "") for key in ("id", "slug", "name", "email")}
    return Identity(**words)


def begin_login(client: HubClient) -> PendingLogin:
    """Ask the hub for a challenge, with a fresh key pair that only this process holds."""
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    answer = client.post("/auth_challenge/generate", {"encryptionPublicKey": pem.decode()})
    code, token = str(answer.get("challenge") or ""), str(answer.get("status_auth_token") or "")
    if not code or not token:
        raise HubError(f"{client.settings.base_url} gave no login challenge", hint="see `prime config view`")
    page = f"{client.settings.frontend_url}/dashboard/tokens/challenge?code={quote(code)}"
    return PendingLogin(code, page, token, private_key)


def await_approval(
    settings: Settings,
    pending: PendingLogin,
    *,
    on_wait: Callable[[float], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Ask until somebody approved, and return the API key. `on_wait` gets the seconds waited before each pause.

    Raises:
        PrimeError: nobody approved in time, or it was denied.
    """
    started = clock()
    with HubClient(settings, pending.status_token) as client:
        while True:
            try:
                result = client.get("/auth_challenge/status", challenge=pending.code).get("result")
            except HubError as error:
                if error.status != _GONE:
                    raise
                raise PrimeError("the login was denied or expired", hint="run `prime login` again") from None
            if result is not None:
                return _decrypt(pending.private_key, str(result))
            waited = clock() - started
            if waited >= APPROVAL_TIMEOUT_S:
                raise PrimeError("nobody approved the login within 10 minutes", hint="run `prime login` again")
            on_wait(waited)
            sleep(POLL_INTERVAL_S)


def finish_login(settings: Settings, api_key: str) -> LoggedIn:
    """Check the key with the hub, then store it, the hub and the user in the context in force.

    Raises:
        HubError: the hub does not take the key; nothing is stored then.
    """
    with HubClient(settings, api_key) as client:
        identity = whoami(client)
    stored_in = store_api_key(settings, api_key)
    save_settings(
        base_url=settings.base_url,
        frontend_url=settings.frontend_url,
        inference_url=settings.inference_url,
        user_id=identity.id,
        user_name=identity.name or identity.slug,
        team_id=None,
        team_name=None,
        team_role=None,
    )
    return LoggedIn(identity, settings.base_url, stored_in)


def _decrypt(private_key: rsa.RSAPrivateKey, result: str) -> str:
    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
    try:
        return private_key.decrypt(base64.b64decode(result, validate=True), oaep).decode()
    except (ValueError, binascii.Error):
        raise HubError("the hub's answer to the login cannot be read", hint="run `prime login` again") from None
