"""Where an API key is kept: the system's keyring when there is a working one, else the 0600 file of the context.

A key belongs to one hub. It is never sent to another one that `PRIME_API_BASE_URL` names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from prime_cli.core.context import Settings, context_path, normalise_url, prime_home, read_context, write_context

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

_SERVICE = "prime-lab"
# A keyring may wait for somebody to unlock it; in a script nobody will.
_KEYRING_TIMEOUT_S = 15.0

ResultT = TypeVar("ResultT")


def load_api_key(settings: Settings) -> str | None:
    """Return the API key for `settings.base_url`: from PRIME_API_KEY, the context's file or the keyring; else None."""
    if key := os.environ.get("PRIME_API_KEY", "").strip():
        return key
    return load_stored_api_key(settings)


def load_stored_api_key(settings: Settings) -> str | None:
    """Return the API key that was stored for this context and hub, whatever PRIME_API_KEY says; else None."""
    # Storing a key in one place removes it from the other, so the cheap place is asked first.
    return _key_in_file(settings) or _key_in_keyring(settings)


def store_api_key(settings: Settings, key: str) -> str:
    """Store `key` for this context and hub and return in words where it went; the hub becomes the context's hub."""
    values = {**read_context(settings.context), "base_url": settings.base_url}
    backend = _keyring()
    if backend is not None:
        stored = _ask(lambda: backend.set_password(_SERVICE, _account(settings), key) or True)
        if stored:
            write_context(settings.context, {**values, "api_key": ""})
            return f"the keyring ({backend.name})"
    path = write_context(settings.context, {**values, "api_key": key})
    return f"{path} (readable by you only)"


def delete_api_key(settings: Settings) -> bool:
    """Forget the stored key of this context and hub; False when there was none. PRIME_API_KEY is not touched."""
    in_file = _key_in_file(settings) is not None
    if in_file:
        write_context(settings.context, {**read_context(settings.context), "api_key": ""})
    in_keyring = _key_in_keyring(settings) is not None
    if in_keyring and (backend := _keyring()) is not None:
        _ask(lambda: backend.delete_password(_SERVICE, _account(settings)))
    return in_file or in_keyring


def describe_source(settings: Settings) -> str | None:
    """Say in words where the key that `load_api_key` returns lies; None when there is none."""
    if os.environ.get("PRIME_API_KEY", "").strip():
        return "the environment variable PRIME_API_KEY"
    if _key_in_file(settings):
        return str(context_path(settings.context))
    backend = _keyring()
    return f"the keyring ({backend.name})" if backend is not None and _key_in_keyring(settings) else None


def _key_in_file(settings: Settings) -> str | None:
    values = read_context(settings.context)
    if normalise_url(str(values["base_url"])) != settings.base_url:
        return None
    return str(values["api_key"]).strip() or None if values["api_key"] else None


def _key_in_keyring(settings: Settings) -> str | None:
    backend = _keyring()
    if backend is None:
        return None
    return _ask(lambda: backend.get_password(_SERVICE, _account(settings))) or None


def _account(settings: Settings) -> str:
    return f"{settings.context} {settings.base_url} {prime_home()}"


def _keyring() -> KeyringBackend | None:
    """Return a keyring that can store, or None: switched off, or only the fail and null backends are there."""
    if os.environ.get("PRIME_DISABLE_KEYRING", "").strip() not in ("", "0"):
        return None
    import keyring
    from keyring.backends import chainer, fail, null

    backend = keyring.get_keyring()
    if isinstance(backend, (fail.Keyring, null.Keyring)):
        return None
    if isinstance(backend, chainer.ChainerBackend) and not list(backend.backends):
        return None
    return backend


def _ask(question: Callable[[], ResultT]) -> ResultT | None:
    """Call a keyring's operation; None when it fails or does not answer in time, which counts as having no keyring."""
    answers: list[ResultT] = []

    def ask() -> None:
        try:
            answers.append(question())
        except Exception:  # noqa: BLE001  the backends raise whatever their library does; each means "no keyring"
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_KEYRING_TIMEOUT_S)
    return answers[0] if answers else None
