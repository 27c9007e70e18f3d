"""Settings: where each value comes from, and what is written where."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from prime_cli.core.context import (
    DEFAULT_BASE_URL,
    for_hub,
    load_settings,
    normalise_url,
    prime_home,
    save_settings,
    set_base_url,
)
from prime_cli.core.errors import BadInput, ConfigError, PrimeError


def config() -> dict[str, object]:
    """Return what config.json holds."""
    data: dict[str, object] = json.loads((prime_home() / "config.json").read_text())
    return data


def test_without_a_file_the_defaults_hold_and_nothing_is_written() -> None:
    settings = load_settings()
    assert (settings.context, settings.base_url) == ("production", DEFAULT_BASE_URL)
    assert settings.frontend_url == DEFAULT_BASE_URL
    assert settings.inference_url == f"{DEFAULT_BASE_URL}/inference/v1"
    assert not (prime_home() / "config.json").exists()


def test_the_file_wins_over_the_default_and_the_environment_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    set_base_url("http://file.example/api/v1/")
    save_settings(team_id="from-file", inference_url="http://models.example/v1")
    assert load_settings().base_url == "http://file.example"
    monkeypatch.setenv("PRIME_BASE_URL", "http://second.example")
    monkeypatch.setenv("PRIME_TEAM_ID", "")
    assert load_settings().base_url == "http://second.example"
    assert load_settings().team_id == "from-file"
    monkeypatch.setenv("PRIME_API_BASE_URL", "http://first.example/api/v1")
    settings = load_settings()
    assert settings.base_url == settings.frontend_url == "http://first.example"
    assert settings.inference_url == "http://first.example/inference/v1"
    assert config()["base_url"] == "http://file.example"


def test_the_file_has_the_published_keys_and_is_for_its_owner_only() -> None:
    save_settings(user_name="Ada")
    path = prime_home() / "config.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config().keys() == {
        "api_key", "team_id", "team_name", "team_role", "user_id", "user_name", "base_url", "frontend_url",
        "inference_url", "traces_url", "ssh_key_path", "current_environment", "share_resources_with_team",
        "traces_opt_out",
    }  # fmt: skip


def test_keys_of_newer_tools_survive_a_change() -> None:
    prime_home().mkdir(parents=True, exist_ok=True)
    (prime_home() / "config.json").write_text('{"base_url": "http://a.example", "of_another_tool": 1}')
    save_settings(team_id="x")
    assert config()["of_another_tool"] == 1


def test_another_hub_drops_the_login_of_the_former() -> None:
    set_base_url("http://a.example")
    save_settings(api_key="key-of-a", user_id="u", team_id="t")
    assert set_base_url("http://a.example/") is False
    assert config()["api_key"] == "key-of-a"
    assert set_base_url("http://b.example") is True
    assert (config()["api_key"], config()["user_id"], config()["team_id"]) == ("", None, None)
    assert config()["frontend_url"] == "http://b.example"


def test_settings_for_another_hub_share_nothing_with_the_former() -> None:
    save_settings(user_id="u", traces_url="http://traces.example")
    other = for_hub(load_settings(), "http://b.example/")
    assert (other.user_id, other.traces_url) == (None, "http://b.example")
    assert for_hub(load_settings(), DEFAULT_BASE_URL + "/") == load_settings()


@pytest.mark.parametrize("url", ["", "hub.example", "ftp://hub.example", "http://", "http:// x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        normalise_url(url)


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_broken_file_is_named(text: str) -> None:
    prime_home().mkdir(parents=True, exist_ok=True)
    (prime_home() / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_settings()


def test_an_unknown_context_names_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_CONTEXT", "elsewhere")
    with pytest.raises(PrimeError, match="unknown context 'elsewhere'") as caught:
        load_settings()
    assert caught.value.hint == "known contexts: production"
    monkeypatch.setenv("PRIME_CONTEXT", "../escape")
    with pytest.raises(BadInput):
        load_settings()


def test_the_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIME_HOME", str(tmp_path))
    assert prime_home() == tmp_path
    monkeypatch.delenv("PRIME_HOME")
    assert prime_home() == Path.home() / ".prime"
