"""`prime secret`, `prime env secret` and `prime env var` against a running hub."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running_hub import PRIME, Push, RunningHub, answer, start_hub

VALUE = "sk-the-very-secret-value-4711"
Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with an environment `sums` of the administrator's."""
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    with running.client(running.admin_key) as client:
        assert Push(client, "sums", "0.1.0").run().is_success
    yield running
    running.end()


@pytest.fixture
def prime(hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prime:
    """Run a command as the administrator, in a folder that was pushed as `sums`."""
    monkeypatch.setenv("PRIME_API_BASE_URL", hub.url)
    monkeypatch.setenv("PRIME_API_KEY", hub.admin_key)
    with hub.client(hub.admin_key) as client:
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
    noted = tmp_path / ".prime" / ".env-metadata.json"
    noted.parent.mkdir()
    noted.write_text(json.dumps({"owner": slug, "name": "sums"}))

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [*PRIME, "--output", "json", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=dict(os.environ), check=False, cwd=tmp_path, input=stdin
        )

    return run


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON of a command that must have succeeded and must not have said a value."""
    assert done.returncode == 0, done.stderr
    assert VALUE not in done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert isinstance(data, dict)
    return data


def test_a_global_secret_from_its_creation_to_its_end(prime: Prime, tmp_path: Path) -> None:
    made = told(prime("secret", "create", "-n", "API_KEY", "-v", "-", "-d", "for tests", stdin=f"{VALUE}\n"))
    assert (made["name"], made["description"], made["isFile"]) == ("API_KEY", "for tests", False)
    (tmp_path / "cert.pem").write_bytes(b"\0\1 cert")
    assert told(prime("secret", "create", "--name", "CERT", "--value", "cert.pem", "--file"))["isFile"] is True
    assert [entry["name"] for entry in told(prime("secret", "list"))["secrets"]] == ["API_KEY", "CERT"]
    assert told(prime("secret", "update", "API_KEY", "--value", VALUE, "--name", "OTHER"))["id"] == made["id"]
    assert told(prime("secret", "get", made["id"]))["name"] == "OTHER"
    assert told(prime("secret", "delete", "OTHER", "-y")) == {"id": made["id"], "name": "OTHER"}
    assert told(prime("secret", "delete", "CERT", "--yes"))["name"] == "CERT"
    assert told(prime("secret", "ls"))["secrets"] == []


def test_the_secrets_and_variables_of_the_environment_of_this_folder(prime: Prime) -> None:
    own = told(prime("env", "secret", "create", "-n", "OWN", "-v", VALUE))
    told(prime("secret", "create", "-n", "SHARED", "-v", VALUE))
    assert told(prime("env", "secret", "link", "SHARED"))["secretName"] == "SHARED"
    listed = told(prime("env", "secret", "list"))["secrets"]
    assert [(entry["name"], entry["source"]) for entry in listed] == [("OWN", "environment"), ("SHARED", "global")]
    assert told(prime("env", "secret", "update", "--id", own["id"], "-d", "new"))["description"] == "new"
    assert told(prime("env", "secret", "unlink", "SHARED", "-y"))["name"] == "SHARED"
    assert told(prime("env", "secret", "delete", "--id", "OWN", "-y"))["name"] == "OWN"
    assert told(prime("env", "secret", "list"))["secrets"] == []
    variable = told(prime("env", "var", "create", "-n", "LEVEL", "-v", "3"))
    assert told(prime("env", "var", "update", variable["id"], "-v", "4"))["value"] == "4"
    assert [entry["value"] for entry in told(prime("env", "var", "list"))["variables"]] == ["4"]
    assert told(prime("env", "var", "delete", "LEVEL", "-y"))["name"] == "LEVEL"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("secret create -n lower -v x", "'lower' cannot name a secret"),
        ("secret create -v x", "give --name where nobody can be asked"),
        ("secret create -n A", "give --value where nobody can be asked"),
        ("secret create -n A -v -", "the value is empty"),
        ("secret create -n A -v no-such-file -f", "cannot read no-such-file"),
        ("secret get NONE", "there is no secret 'NONE'"),
        ("secret delete", "give its id or name"),
        ("env secret list nobody/nothing", "nobody/nothing not found"),
        ("env var update NONE -v x", "there is no variable 'NONE'"),
        ("env secret unlink NONE", "there is no secret 'NONE'"),
    ],
)
def test_what_cannot_be_is_one_line(prime: Prime, line: str, words: str) -> None:
    refused = prime(*line.split())
    assert refused.returncode in (1, 2)
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nothing_is_deleted_where_nobody_can_be_asked(prime: Prime) -> None:
    told(prime("secret", "create", "-n", "STAYS", "-v", VALUE))
    refused = prime("secret", "delete", "STAYS")
    assert refused.returncode == 2
    assert "say `--yes` where nobody can be asked" in refused.stderr
    assert told(prime("secret", "delete", "STAYS", "-y"))["name"] == "STAYS"


def test_a_folder_that_was_not_pushed_needs_the_name(prime: Prime, tmp_path: Path) -> None:
    (tmp_path / ".prime" / ".env-metadata.json").unlink()
    refused = prime("env", "var", "list")
    assert refused.returncode == 2
    assert "which environment?" in refused.stderr
