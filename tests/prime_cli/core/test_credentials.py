"""Where an API key goes, and to whom it is shown."""

from __future__ import annotations

import json
import time

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as FailKeyring
from keyring.errors import KeyringError, PasswordDeleteError

from prime_cli.core import credentials
from prime_cli.core.context import load_settings, prime_home, set_base_url
from prime_cli.core.credentials import delete_api_key, describe_source, load_api_key, store_api_key


class MemoryKeyring(KeyringBackend):
    """A keyring that works, for as long as the test runs."""

    priority = 1
    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.entries.pop((service, username), None) is None:
            raise PasswordDeleteError("none")


class LockedKeyring(MemoryKeyring):
    """A keyring that nobody unlocks."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringError("locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringError("locked")


class SilentKeyring(MemoryKeyring):
    """A keyring that waits for somebody."""

    def set_password(self, service: str, username: str, password: str) -> None:
        time.sleep(5)


def choose(monkeypatch: pytest.MonkeyPatch, backend: KeyringBackend) -> None:
    monkeypatch.delenv("PRIME_DISABLE_KEYRING")
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)


def key_in_file() -> str:
    return str(json.loads((prime_home() / "config.json").read_text())["api_key"])


def test_without_a_keyring_the_key_goes_to_the_file() -> None:
    settings = load_settings()
    assert load_api_key(settings) is None
    assert describe_source(settings) is None
    assert "config.json" in store_api_key(settings, "prime_k")
    assert load_api_key(settings) == key_in_file() == "prime_k"
    assert "config.json" in str(describe_source(settings))
    assert delete_api_key(settings) is True
    assert delete_api_key(settings) is False
    assert load_api_key(settings) is None


def test_a_working_keyring_is_used_and_the_file_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    store_api_key(settings, "prime_old")
    choose(monkeypatch, MemoryKeyring())
    assert store_api_key(settings, "prime_new") == "the keyring (memory)"
    assert key_in_file() == ""
    assert load_api_key(settings) == "prime_new"
    assert describe_source(settings) == "the keyring (memory)"
    assert delete_api_key(settings) is True
    assert load_api_key(settings) is None


@pytest.mark.parametrize("backend", [LockedKeyring(), FailKeyring()])
def test_a_keyring_that_does_not_work_counts_as_none(monkeypatch: pytest.MonkeyPatch, backend: KeyringBackend) -> None:
    choose(monkeypatch, backend)
    settings = load_settings()
    assert "config.json" in store_api_key(settings, "prime_k")
    assert load_api_key(settings) == "prime_k"


def test_a_keyring_that_does_not_answer_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, SilentKeyring())
    monkeypatch.setattr(credentials, "_KEYRING_TIMEOUT_S", 0.1)
    assert "config.json" in store_api_key(load_settings(), "prime_k")


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    store_api_key(settings, "prime_k")
    monkeypatch.setenv("PRIME_API_KEY", "prime_env")
    assert load_api_key(settings) == "prime_env"
    assert describe_source(settings) == "the environment variable PRIME_API_KEY"


def test_a_key_is_not_shown_to_another_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    set_base_url("http://a.example")
    store_api_key(load_settings(), "prime_a")
    monkeypatch.setenv("PRIME_API_BASE_URL", "http://b.example")
    assert load_api_key(load_settings()) is None
