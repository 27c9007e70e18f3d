"""`prime teams`, `prime switch` and `prime keys` against a running hub."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running_hub import PRIME, Push, RunningHub, answer, start_hub

Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for all tests of this file."""
    running = start_hub(tmp_path_factory.mktemp("accounts") / "data")
    yield running
    running.end()


@pytest.fixture
def prime(hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prime:
    """Run a command as a user of one's own; `as_user` names another."""
    monkeypatch.setenv("PRIME_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PRIME_API_BASE_URL", hub.url)
    for slug in ("ada-l", "grace-h"):
        hub.key_of(slug)

    def run(*arguments: str, as_user: str = "ada-l") -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ) | {"PRIME_API_KEY": hub.key_of(as_user)}
        command = [*PRIME, "--output", "json", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return run


def test_a_team_is_made_filled_worked_as_and_left(prime: Prime, hub: RunningHub) -> None:
    made = json.loads(prime("teams", "create", "lovelace-lab", "--name", "Lovelace Lab").stdout)
    assert (made["slug"], made["role"]) == ("lovelace-lab", "owner")
    added = prime("teams", "add", "lovelace-lab", "grace-h", "--role", "reader")
    assert json.loads(added.stdout)["role"] == "reader"
    listed = json.loads(prime("teams", "list", as_user="grace-h").stdout)
    assert [(team["slug"], team["role"]) for team in listed["teams"]] == [("lovelace-lab", "reader")]
    members = json.loads(prime("teams", "members", "lovelace-lab").stdout)["members"]
    assert {row["slug"]: row["role"] for row in members} == {"ada-l": "owner", "grace-h": "reader"}
    switched = json.loads(prime("switch", "lovelace-lab").stdout)
    assert switched["team"]["id"] == made["id"]
    assert json.loads(prime("whoami").stdout)["team_id"] == made["id"]
    assert json.loads(prime("switch", "personal").stdout) == {"team": None}
    assert json.loads(prime("whoami").stdout)["team_id"] is None
    left = prime("teams", "remove", "lovelace-lab", "grace-h", as_user="grace-h")
    assert left.returncode == 0, left.stderr
    refused = prime("teams", "remove", "lovelace-lab", "ada-l")
    assert refused.returncode == 1
    assert "last owner" in refused.stderr


def test_a_team_that_one_is_not_in_is_named_with_the_nearest(prime: Prime) -> None:
    assert prime("teams", "create", "curie-lab").returncode == 0
    wrong = prime("switch", "curie-lap")
    assert wrong.returncode == 2
    assert "did you mean 'curie-lab'?" in wrong.stderr
    asked = prime("switch")
    assert asked.returncode == 2
    assert "curie-lab" in asked.stderr


def test_a_key_for_ci_publishes_and_does_nothing_else(prime: Prime, hub: RunningHub, tmp_path: Path) -> None:
    key_file = tmp_path / "ci.key"
    made = prime("keys", "create", "ci", "-s", "environments:write", "--days", "90", "--key-file", str(key_file))
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    key = key_file.read_text().strip()
    assert key not in made.stdout
    with hub.client(key) as ci:
        assert Push(ci, "by-ci", "0.1.0").run().is_success
        assert ci.get("/user/keys").status_code == 403
    rows = json.loads(prime("keys", "list").stdout)["keys"]
    row = next(row for row in rows if row["name"] == "ci")
    assert row["scopes"] == {"environments": "write"}
    revoked = json.loads(prime("keys", "revoke", "ci").stdout)
    assert revoked["id"] == row["id"]
    with hub.client(key) as ci:
        assert ci.get("/environmentshub/").status_code == 401
    assert "ci" not in [row["name"] for row in json.loads(prime("keys", "list").stdout)["keys"]]
    assert "ci" in [row["name"] for row in json.loads(prime("keys", "list", "--all").stdout)["keys"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("keys", "create", "x", "-s", "environments"), "is no scope"),
        (("keys", "create", "x", "-s", "planets:read"), "planets"),
        (("keys", "revoke", "nothing-like-this"), "no key in use"),
        (("teams", "members"), "which team?"),
        (("teams", "create", "X"), "slug"),
        (("teams", "members", "of-nobody"), "not found among yours"),
    ],
)
def test_bad_input_is_told_in_one_line(prime: Prime, arguments: tuple[str, ...], words: str) -> None:
    refused = prime(*arguments)
    assert refused.returncode in (1, 2)
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_a_team_publishes_is_the_teams(prime: Prime, hub: RunningHub) -> None:
    assert prime("teams", "create", "noether-lab").returncode == 0
    with hub.client(hub.key_of("ada-l")) as ada:
        assert Push(ada, "symmetries", "0.1.0", owner="noether-lab").run().is_success
        assert (
            answer(ada.get("/environmentshub/noether-lab/symmetries/@latest"))["data"]["owner"]["name"] == "noether-lab"
        )
    listed = prime("env", "list", "--owner", "noether-lab")
    assert "symmetries" in listed.stdout, listed.stderr
