"""Contexts: several hubs, several accounts."""

from __future__ import annotations

import stat

import pytest

from prime_cli.core.context import load_settings, prime_home, save_settings, set_base_url
from prime_cli.core.credentials import load_api_key, store_api_key
from prime_cli.core.errors import PrimeError
from prime_cli.core.saved_contexts import delete_context, list_contexts, reset_context, save_context, use_context


def log_in(base_url: str, key: str) -> None:
    set_base_url(base_url)
    store_api_key(load_settings(), key)


def test_switching_there_and_back_loses_nothing() -> None:
    log_in("http://a.example", "prime_a")
    save_context("staging")
    use_context("staging")
    assert load_api_key(load_settings()) == "prime_a"
    log_in("http://b.example", "prime_b")
    save_settings(team_id="team-b")
    use_context("production")
    settings = load_settings()
    assert (settings.context, settings.base_url, settings.team_id) == ("production", "http://a.example", None)
    assert load_api_key(settings) == "prime_a"
    use_context("staging")
    settings = load_settings()
    assert (settings.context, settings.base_url, settings.team_id) == ("staging", "http://b.example", "team-b")
    assert load_api_key(settings) == "prime_b"
    assert list_contexts() == ["production", "staging"]
    for file in (prime_home() / "environments").glob("*.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_context_for_one_call_changes_that_context_only(monkeypatch: pytest.MonkeyPatch) -> None:
    log_in("http://a.example", "prime_a")
    save_context("other")
    monkeypatch.setenv("PRIME_CONTEXT", "other")
    log_in("http://b.example", "prime_b")
    assert load_api_key(load_settings()) == "prime_b"
    monkeypatch.delenv("PRIME_CONTEXT")
    assert load_settings().base_url == "http://a.example"
    assert load_api_key(load_settings()) == "prime_a"


def test_a_context_in_use_or_unknown_or_built_in_is_not_deleted() -> None:
    save_context("other")
    delete_context("other")
    assert list_contexts() == ["production"]
    for name in ("other", "production"):
        with pytest.raises(PrimeError):
            delete_context(name)
    with pytest.raises(PrimeError, match="unknown context"):
        use_context("other")
    with pytest.raises(PrimeError, match="in use"):
        save_context("production")


def test_a_reset_forgets_everything_of_the_context() -> None:
    log_in("http://a.example", "prime_a")
    assert reset_context() == "production"
    settings = load_settings()
    assert load_api_key(settings) is None
    assert settings.base_url == "http://127.0.0.1:8480"
