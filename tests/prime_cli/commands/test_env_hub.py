"""The commands of `prime env` that look at a hub and change what lies there, against a running hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prime_cli.environments.hub_catalog import EnvironmentDetails
from tests.running_hub import PRIME, Push, RunningHub, answer, make_wheel, start_hub

Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub for the tests of this file."""
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    yield running
    running.end()


@pytest.fixture
def prime(hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prime:
    """Run prime as the user `ada`, in an empty folder."""
    monkeypatch.setenv("PRIME_API_BASE_URL", hub.url)
    monkeypatch.setenv("PRIME_API_KEY", hub.key_of("ada"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PRIME, *arguments], capture_output=True, text=True, env=dict(os.environ), input="")

    return run


def test_status_says_what_is_there(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("ada")) as client:
        answer(client.post("/environmentshub/resolve", json={"name": "begun"}))
        assert Push(client, "ready", "0.3.0").run().is_success
    told = json.loads(prime("env", "status", "ada/ready", "--output", "json").stdout)
    assert (told["environment"], told["visibility"]) == ("ada/ready", "PUBLIC")
    assert told["latest_version"]["semantic_version"] == "0.3.0"
    assert "latest version: 0.3.0 (content " in prime("env", "status", "ada/ready").stdout
    assert "none published yet" in prime("env", "status", "ada/begun").stdout
    missing = prime("env", "status", "ada/raedy")
    assert missing.returncode == 1
    assert "did you mean ada/ready?" in missing.stderr


def test_inspect_shows_folders_and_files(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("ada")) as client:
        assert Push(client, "glass", "0.1.0", code="VALUE = '[red]'\n").run().is_success
    assert prime("--plain", "env", "inspect", "ada/glass").stdout == (
        "path\tbytes\nglass.py\t16\npyproject.toml\t17\n"
    )  # fmt: skip
    assert prime("env", "inspect", "ada/glass@0.1.0", "glass.py").stdout == "VALUE = '[red]'\n"
    cut = prime("env", "inspect", "ada/glass", "glass.py", "--max-bytes", "5")
    assert cut.stdout == "VALUE\n"
    assert "the first 5 of 16 bytes" in cut.stderr
    told = json.loads(prime("env", "inspect", "ada/glass", "glass.py", "--output", "json").stdout)
    assert (told["kind"], told["content"], told["truncated"]) == ("file", "VALUE = '[red]'\n", False)
    missing = prime("env", "inspect", "ada/glass", "glas.py")
    assert missing.returncode == 1
    assert "did you mean glass.py?" in missing.stderr


def test_a_version_is_deleted_by_the_hash_that_the_list_shows(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("ada")) as client:
        for version in ("0.1.0", "0.2.0"):
            assert Push(client, "shrinks", version).run().is_success
    rows = json.loads(prime("env", "version", "list", "ada/shrinks", "--output", "json").stdout)["versions"]
    unasked = prime("env", "version", "delete", "ada/shrinks", rows[0]["sha256"][:8])
    assert unasked.returncode == 2
    assert "nobody is there to be asked" in unasked.stderr
    deleted = prime("env", "version", "delete", "ada/shrinks", rows[0]["sha256"][:8], "-f", "--output", "json")
    assert json.loads(deleted.stdout) == {"environment": "ada/shrinks", "version": "0.2.0", "deleted": True}
    again = prime("env", "version", "delete", "ada/shrinks", rows[0]["sha256"][:8], "-f")
    assert again.returncode == 1
    assert "not found; there are 0.1.0" in again.stderr
    assert prime("env", "version", "delete", "ada/shrinks", "latest", "-f").returncode == 2
    assert len(json.loads(prime("env", "versions", "ada/shrinks", "--output", "json").stdout)["versions"]) == 1


def test_an_environment_is_deleted_by_its_owner_only(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("ada")) as client, hub.client(hub.key_of("bob")) as other:
        assert Push(client, "leaves", "0.1.0").run().is_success
        assert Push(other, "stays", "0.1.0").run().is_success
    assert prime("env", "delete", "ada/leaves").returncode == 2
    assert prime("env", "delete", "ada/leaves@0.1.0", "-f").returncode == 2
    assert prime("env", "status", "ada/leaves").returncode == 0
    assert json.loads(prime("env", "delete", "ada/leaves", "--force", "--output", "json").stdout)["deleted"]
    assert prime("env", "status", "ada/leaves").returncode == 1
    refused = prime("env", "delete", "bob/stays", "-f")
    assert refused.returncode == 1
    assert "belongs to 'bob'" in refused.stderr
    assert prime("env", "status", "bob/stays").returncode == 0


def test_stars_are_given_listed_and_taken_back(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("bob")) as other:
        assert Push(other, "shines", "0.1.0").run().is_success
    assert prime("env", "star", "bob/shines").stdout == "bob/shines has 1 star\n"
    starred = json.loads(prime("env", "list", "--starred", "--output", "json").stdout)
    assert [(row["environment"], row["stars"]) for row in starred["environments"]] == [("bob/shines", 1)]
    given = json.loads(prime("env", "unstar", "bob/shines", "--output", "json").stdout)
    assert given == {"environment": "bob/shines", "starred": False, "stars": 0}
    assert prime("env", "star", "bob/shine").returncode == 1


def test_an_environment_is_forked_once(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("bob")) as other:
        assert Push(other, "begins", "0.1.0").run().is_success
    told = json.loads(prime("fork", "bob/begins", "--output", "json").stdout)
    assert (told["slug"], told["success"]) == ("ada/begins", True)
    shown = json.loads(prime("env", "info", "ada/begins", "--output", "json").stdout)
    assert (shown["forked_from"], shown["version"]) == ("bob/begins@0.1.0", "0.1.0")
    again = prime("env", "fork", "bob/begins")
    assert again.returncode == 1
    assert "ada/begins already exists" in again.stderr
    assert prime("fork", "bob/begins@0.1.0").returncode == 2
    assert prime("fork", "bob/begins", "--team", "nobodys").returncode == 1


def test_a_version_is_raised_in_one_way_at_a_time(prime: Prime) -> None:
    assert prime("env", "init", "raised").returncode == 0
    refused = prime("env", "push", "raised", "--rc", "--auto-bump")
    assert refused.returncode == 2
    assert "give one of them" in refused.stderr
    pyproject = Path("environments/raised/pyproject.toml")
    before = pyproject.read_text()
    pushed = prime("env", "push", "raised", "--rc", "--no-check", "--output", "json")
    assert pushed.returncode == 0, pushed.stderr
    assert json.loads(pushed.stdout)["version"] == "0.1.0rc0"
    assert before.replace('"0.1.0"', '"0.1.0rc0"') == pyproject.read_text()
    assert json.loads(prime("env", "push", "raised", "--post", "--no-check", "--output", "json").stdout)["version"] == (
        "0.1.0rc0.post0"
    )


def test_checks_are_listed_read_and_asked_for_again(hub: RunningHub, prime: Prime) -> None:
    with hub.client(hub.key_of("ada")) as client:
        assert Push(client, "acted-on", "0.1.0").run().is_success
    told = json.loads(prime("env", "action", "list", "ada/acted-on", "--output", "json").stdout)
    assert told["total"] == 1
    check = told["actions"][0]
    assert (check["version"]["semantic_version"], check["status"]) == ("0.1.0", "PENDING")
    assert "not checked yet" in prime("--plain", "env", "action", "list", "ada/acted-on").stdout
    for named in ([], [check["id"]]):
        log = json.loads(prime("env", "action", "logs", "ada/acted-on", *named, "--output", "json").stdout)
        assert log == {"id": check["id"], "logs": ""}
        again = prime("env", "action", "retry", "ada/acted-on", *named)
        assert "version 0.1.0 of acted-on will be checked" in again.stdout
    missing = prime("env", "action", "logs", "ada/acted-on", "none")
    assert missing.returncode == 1
    assert "check none of ada/acted-on not found" in missing.stderr


def test_a_push_says_which_runtime_an_environment_is_for(hub: RunningHub, prime: Prime, tmp_path: Path) -> None:
    filename, data = make_wheel("for-v1", "0.1.0", code="def load_environment():\n    return None\n")
    (tmp_path / filename).write_bytes(data)
    refused = prime("env", "push", filename, "--runtime", "v2")
    assert refused.returncode == 2
    assert "invalid runtime 'v2'" in refused.stderr
    assert prime("env", "push", filename, "--runtime", "v1").returncode == 0
    with hub.client() as nobody:
        assert answer(nobody.get("/environmentshub/ada/for-v1/@latest"))["data"]["runtime_hint"] == "VERIFIERS_V1"


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_what_an_environment_needs_from_an_address_is_installed_with_it(
    hub: RunningHub, prime: Prime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with hub.client(hub.key_of("ada")) as client:
        assert Push(client, f"needed-by-{tool}", "0.1.0").run().is_success
        address = answer(client.get(f"/environmentshub/ada/needed-by-{tool}/@latest"))["data"]["wheel_url"]
        about = (
            f"Metadata-Version: 2.1\nName: {tool}-needs\nVersion: 0.1.0\nRequires-Dist: needed-by-{tool} @ {address}\n"
        )
        push = Push(client, f"{tool}-needs", "0.1.0")
        push.filename, push.wheel = make_wheel(f"{tool}-needs", "0.1.0", metadata=about)
        assert push.run().is_success
    done = prime("env", "install", f"ada/{tool}-needs", "--with", tool)
    assert done.returncode == 0, done.stderr
    code = f"import {tool}_needs, needed_by_{tool}; print(needed_by_{tool}.VALUE)"
    loaded = subprocess.run([tmp_path / "venv" / "bin" / "python", "-c", code], capture_output=True, text=True)
    assert loaded.stdout == "1\n", loaded.stderr


def test_no_answer_of_a_hub_becomes_an_option_of_an_installer() -> None:
    named = [
        "fine @ https://a.example/b.whl",
        "also-fine[x]@git+https://a.example/b",
        "--index-url=http://evil.example",
    ]
    named += ["-e git+https://evil.example/x", "plain>=1", "a @ /etc/passwd", "", " -r x @ https://a.example"]
    details = EnvironmentDetails("ada", "a", "1", "", "PUBLIC", "", {"url_dependencies": named})
    assert details.url_dependencies == named[:2]
