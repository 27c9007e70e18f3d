"""login, whoami, logout, config and hub add-user, typed as a user would against a running hub."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from prime_cli.core.context import prime_home
from tests.running_hub import PRIME, RunningHub, answer, start_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub for these tests."""
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    yield running
    running.end()


def prime(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    environment = {**os.environ, **variables}
    command = [*PRIME, "--plain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, env=environment, check=False)


def log_in(hub: RunningHub) -> None:
    done = prime("login", "--base-url", hub.url, "--api-key-file", str(hub.data_dir / "admin.key"))
    assert done.returncode == 0, done.stderr


def test_a_login_with_a_key_says_who_where_and_where_the_key_went(hub: RunningHub) -> None:
    done = prime("login", "--base-url", hub.url, "--api-key-file", "-", stdin=hub.admin_key + "\n")
    assert done.returncode == 0, done.stderr
    config = prime_home() / "config.json"
    assert done.stdout.startswith(f"Logged in to {hub.url} as ")
    assert f"kept in {config} (readable by you only)" in done.stderr
    assert hub.admin_key not in done.stdout + done.stderr
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    me = json.loads(prime("--output", "json", "whoami").stdout)
    assert (me["base_url"], me["context"], me["api_key_from"]) == (hub.url, "production", str(config))
    assert json.loads(config.read_text())["user_id"] == me["id"]
    assert me["slug"] in prime("whoami").stdout


def test_a_login_that_is_approved_elsewhere_gets_a_key_of_its_own(hub: RunningHub) -> None:
    command = [*PRIME, "--plain", "login", "--headless", "--base-url", hub.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert waiting.stdout is not None
        code = ""
        while not code:
            line = waiting.stderr.readline()
            assert line, "the command ended before it showed a code"
            code = match.group(1) if (match := re.search(r"code: (\S+)", line)) else ""
        with hub.client(hub.admin_key) as admin:
            answer(admin.post("/auth_challenge/approve", json={"challenge": code}))
        assert waiting.stdout.read().startswith("Logged in")
        assert waiting.wait(timeout=20) == 0
    assert json.loads((prime_home() / "config.json").read_text())["api_key"] != hub.admin_key
    assert prime("whoami").returncode == 0


def test_ctrl_c_while_waiting_ends_with_130_and_stores_nothing(hub: RunningHub) -> None:
    command = [*PRIME, "--plain", "login", "--headless", "--base-url", hub.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        while "Waiting" not in (line := waiting.stderr.readline()):
            assert line
        waiting.send_signal(signal.SIGINT)
        rest = waiting.stderr.read()
        assert waiting.wait(timeout=20) == 130
    assert "Traceback" not in rest
    assert not (prime_home() / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--api-key", "prime_wrong"], 1, "this API key is wrong, expired or was revoked"),
        (["--api-key-file", "/no/such/file"], 1, "cannot read the API key from /no/such/file"),
        (["--api-key-file", os.devnull], 1, "holds no API key"),
        (["--api-key", "a", "--api-key-file", "b"], 2, "exclude each other"),
        (["--base-url", "hub.example"], 2, "is not a URL"),
    ],
)
def test_a_login_that_cannot_be_is_one_line_and_stores_nothing(
    hub: RunningHub, arguments: list[str], code: int, words: str
) -> None:
    refused = prime("login", "--base-url", hub.url, *arguments)
    assert refused.returncode == code
    assert words in refused.stderr.splitlines()[0]
    assert "Traceback" not in refused.stderr
    assert not (prime_home() / "config.json").exists()


def test_a_logout_forgets_the_key_and_warns_of_the_environment(hub: RunningHub) -> None:
    log_in(hub)
    done = prime("logout", "-y", PRIME_API_KEY="prime_x")
    assert done.returncode == 0
    assert "PRIME_API_KEY is still set" in done.stderr
    assert hub.admin_key not in (prime_home() / "config.json").read_text()
    refused = prime("whoami")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[0] == f"error: not logged in to {hub.url}"
    assert "No key was stored" in prime("logout").stdout


def test_contexts_hold_several_hubs(hub: RunningHub) -> None:
    log_in(hub)
    assert prime("config", "save", "mine").returncode == 0
    assert prime("config", "set-base-url", "http://127.0.0.1:9").returncode == 0
    refused = prime("whoami")
    assert refused.returncode == 1
    assert "not logged in to http://127.0.0.1:9" in refused.stderr
    assert prime("--context", "mine", "whoami").returncode == 0
    assert prime("config", "use", "mine").returncode == 0
    assert json.loads(prime("--output", "json", "config", "view").stdout)["base_url"] == hub.url
    rows = json.loads(prime("--output", "json", "config", "envs").stdout)["contexts"]
    assert [(row["context"], row["in_use"]) for row in rows] == [("production", False), ("mine", True)]
    assert prime("config", "delete", "mine").returncode == 1
    assert prime("config", "use", "nowhere").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["set-team-id", "c" + "a1" * 12], "team_id", "c" + "a1" * 12),
        (["remove-team-id"], "team_id", None),
        (["set-frontend-url", "http://pages.example/"], "frontend_url", "http://pages.example"),
        (["set-inference-url", "http://models.example/api/v1"], "inference_url", "http://models.example/api/v1"),
        (["set-traces-url", "http://traces.example"], "traces_url", "http://traces.example"),
        (["set-traces-opt-out", "true"], "traces_opt_out", True),
        (["set-share-resources-with-team", "true"], "share_resources_with_team", True),
        (["reset", "-y"], "base_url", "http://127.0.0.1:8480"),
    ],
)
def test_each_setting_can_be_set(arguments: list[str], key: str, value: object) -> None:
    done = prime("config", *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(prime("--output", "json", "config", "view").stdout)[key] == value


def test_settings_that_cannot_be_are_refused() -> None:
    for arguments in (["set-team-id", "me"], ["set-base-url", "x"], ["set-ssh-key-path", "/no/key"]):
        refused = prime("config", *arguments)
        assert refused.returncode == 2
        assert refused.stderr.startswith("error: ")
    assert not (prime_home() / "config.json").exists()


def test_an_administrator_adds_users_who_can_log_in(hub: RunningHub, tmp_path: Path) -> None:
    log_in(hub)
    key_file = tmp_path / "ada.key"
    assert prime("hub", "add-user", "ada-l", "--name", "Ada", "--key-file", str(key_file)).returncode == 0
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    taken = prime("hub", "add-user", "ada-l")
    assert taken.returncode == 1
    assert "already taken" in taken.stderr
    assert prime("login", "--api-key-file", str(key_file)).returncode == 0
    assert json.loads(prime("--output", "json", "whoami").stdout)["slug"] == "ada-l"
    refused = prime("hub", "add-user", "eve-x")
    assert refused.returncode == 1
    assert "needs an administrator" in refused.stderr
