"""API keys that the operator makes straight in the database, beside the running hub."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from hub_server.accounts.operator import create_token, list_tokens, revoke_token
from hub_server.errors import NotServing
from prime_cli.core.errors import BadInput
from prime_cli.hub.models import NewKey
from tests.running_hub import PRIME, RunningHub, answer


def token(hub: RunningHub, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PRIME, "--output", "json", "hub", "token", *arguments, "--data-dir", str(hub.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


def whoami(hub: RunningHub, key: str) -> httpx.Response:
    with hub.client(key) as client:
        return client.get("/user/whoami")


def test_the_operator_makes_lists_and_revokes_the_key_of_any_user(hub_on_sqlite: RunningHub, tmp_path: Path) -> None:
    hub = hub_on_sqlite
    hub.key_of("lost-a-key")
    created = token(hub, "create", "lost-a-key", "--name", "new laptop", "--key-file", str(tmp_path / "key"))
    assert created.returncode == 0, created.stderr
    key = (tmp_path / "key").read_text().strip()
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert key not in created.stdout + created.stderr
    assert answer(whoami(hub, key))["data"]["slug"] == "lost-a-key"
    (listed, _) = json.loads(token(hub, "list", "lost-a-key").stdout)["keys"]
    assert (listed["name"], listed["prefix"], listed["scopes"]) == ("new laptop", key[:10], None)
    assert json.loads(token(hub, "revoke", listed["id"]).stdout)["user"] == "lost-a-key"
    assert whoami(hub, key).status_code == 401


def test_a_key_of_the_operators_has_the_scopes_and_the_days_it_was_given(hub_on_sqlite: RunningHub) -> None:
    hub = hub_on_sqlite
    hub.key_of("a-machine")
    shown = json.loads(token(hub, "create", "a-machine", "--scope", "environments:read", "--days", "3").stdout)
    assert shown["expires_at"]
    with hub.client(shown["api_key"]) as client:
        assert client.get("/environmentshub/").is_success
        assert client.post("/environmentshub/resolve", json={"name": "new"}).status_code == 403
    with hub.client(hub.key_of("a-machine")) as client:
        events = answer(client.get("/user/audit"))["data"]
    made = next(event for event in events if event["subject"] == shown["prefix"])
    assert (made["action"], made["actor"], made["details"]["by"]) == ("key.create", None, "the operator")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "nobody-of-this-name"], "there is no user 'nobody-of-this-name'"),
        (["create", "a-machine", "--scope", "cakes:read"], "Input should be"),
        (["revoke", "prime_none"], "no key in use is called 'prime_none'"),
    ],
)
def test_what_cannot_be_is_one_line(hub_on_sqlite: RunningHub, arguments: list[str], words: str) -> None:
    refused = token(hub_on_sqlite, *arguments)
    assert refused.returncode == 2
    assert words in json.loads(refused.stderr)["error"]


def test_a_folder_without_a_hub_has_no_keys(tmp_path: Path) -> None:
    for ask in (
        lambda: create_token(tmp_path, None, "somebody", NewKey(name="key")),
        lambda: list_tokens(tmp_path, None, None, every=True),
        lambda: revoke_token(tmp_path, None, "key"),
    ):
        with pytest.raises(NotServing, match="is not the data folder of a hub"):
            ask()
    assert not list(tmp_path.iterdir())


def test_a_key_is_revoked_by_its_id_and_never_by_what_all_keys_begin_with(hub_on_sqlite: RunningHub) -> None:
    folder = hub_on_sqlite.data_dir
    hub_on_sqlite.key_of("a-twin")
    (row, _), (other, _) = (create_token(folder, None, "a-twin", NewKey(name=name)) for name in ("one", "two"))
    with pytest.raises(BadInput, match="no key in use"):
        revoke_token(folder, None, "prime_")
    revoke_token(folder, None, row["id"])
    assert other["id"] in {key["id"] for key in list_tokens(folder, None, "a-twin", every=False)}
    assert row["id"] not in {key["id"] for key in list_tokens(folder, None, "a-twin", every=False)}
    assert row["id"] in {key["id"] for key in list_tokens(folder, None, "a-twin", every=True)}
