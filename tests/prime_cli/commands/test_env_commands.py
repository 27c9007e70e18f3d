"""`prime env` as a user types it, against a hub and an interpreter of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running_hub import RunningHub, start_hub
from tests.scripted_model import scripted_model

PRIME = [sys.executable, "-m", "prime_cli.main"]
ECHO = """
import verifiers as vf
from datasets import Dataset

def echoes(completion, answer, **_):
    return float(completion[-1]["content"] == answer)

def load_environment():
    rows = [{"prompt": [{"role": "user", "content": word}], "answer": word} for word in ("sun", "moon", "star")]
    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[echoes]))
"""
CODE = "def load_environment(**arguments):\n    return arguments\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    yield running
    running.end()


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with nothing in it, not even pip: the tool's own pip is pointed at it."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@dataclass
class Workspace:
    """A folder with one environment, a user on the hub, and an interpreter."""

    folder: Path
    environment: dict[str, str]

    def prime(self, *arguments: str, code: int = 0, **changes: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **changes}
        result = subprocess.run(
            [*PRIME, *arguments], cwd=self.folder, capture_output=True, text=True,
            env={key: value for key, value in environment.items() if value},
        )  # fmt: skip
        assert result.returncode == code, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    def json(self, *arguments: str, code: int = 0) -> dict[str, object]:
        data = json.loads(self.prime("--output", "json", *arguments, code=code).stdout)
        assert isinstance(data, dict)
        return data

    def write(self, name: str, code: str = CODE, version: str = "0.1.0") -> Path:
        module = name.replace("-", "_")
        folder = self.folder / "environments" / module
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{module}.py").write_text(code)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "{version}"\ndescription = "A toy [/]."\n'
            'requires-python = ">=3.10"\n'
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            f'[tool.hatch.build]\ninclude = ["{module}.py", "pyproject.toml"]\ndev-mode-dirs = ["."]\n'
        )
        return folder


@pytest.fixture
def workspace(tmp_path: Path, hub: RunningHub, venv: Path) -> Workspace:
    """A workspace whose user is new on the hub."""
    owner = f"user-{abs(hash(tmp_path)) % 10**8}"
    keys = {
        "PRIME_API_BASE_URL": hub.url, "PRIME_API_KEY": hub.key_of(owner), "VIRTUAL_ENV": str(venv), "OWNER": owner,
        "PIP_NO_INDEX": "1",  # nothing but the hub is ever asked
        "COLUMNS": "200",
    }  # fmt: skip
    return Workspace(tmp_path, {**os.environ, **keys})


def owner_of(workspace: Workspace) -> str:
    return workspace.environment["OWNER"]


def test_an_environment_goes_to_the_hub_and_comes_back_installed(workspace: Workspace, venv: Path) -> None:
    folder, owner = workspace.write("round-trip"), owner_of(workspace)
    published = workspace.json("env", "upload", "round-trip")
    assert published["environment"] == f"{owner}/round-trip"
    assert published["already_published"] is False
    assert json.loads((folder / ".prime" / ".env-metadata.json").read_text())["owner"] == owner

    installed = workspace.json("env", "install", f"{owner}/round-trip")
    assert installed["results"] == [
        {"environment": f"{owner}/round-trip", "status": "installed", "name": "round-trip", "version": "0.1.0",
         "error": "", "hint": None}
    ]  # fmt: skip
    code = "import round_trip; print(round_trip.load_environment(a=1))"
    shown = subprocess.run([str(venv / "bin/python"), "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "{'a': 1}"
    again = workspace.prime("env", "install", f"{owner}/round-trip@0.1.0")
    assert "is installed already" in again.stdout

    assert f"{owner}/round-trip" in workspace.prime("env", "list", "--local").stdout
    assert "round-trip 0.1.0 removed" in workspace.prime("env", "uninstall", "round-trip").stdout
    workspace.prime("env", "uninstall", "round-trip", code=1)


def test_an_environment_of_the_hub_is_installed_for_an_evaluation_that_names_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    own = tmp_path / "own"  # an interpreter with verifiers, by what this one has, and room for what is installed
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(own)], check=True)
    (site,) = own.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    workspace.environment["VIRTUAL_ENV"] = str(own)
    workspace.write("asked-for", code=ECHO)
    workspace.prime("env", "upload", "asked-for")
    shutil.rmtree(workspace.folder / "environments")
    name = f"{owner_of(workspace)}/asked-for@0.1.0"
    with scripted_model(lambda messages: messages[-1]["content"]) as url:
        done = workspace.json("eval", "run", name, "-m", url, "--model-name", "scripted", "-n", "2", "-r", "1")
        assert (done["num_rollouts"], done["reward_mean"]) == (2, 1.0)
    assert list(site.glob("asked_for*.dist-info")), "it was installed where the workspace's packages are"


def test_the_same_bytes_again_change_nothing_and_other_bytes_need_another_version(workspace: Workspace) -> None:
    workspace.write("fixed-bytes")
    workspace.prime("env", "push", "fixed-bytes", "--no-check")
    assert "is already published" in workspace.prime("env", "push", "fixed-bytes").stdout
    folder = workspace.write("fixed-bytes", code=f"{CODE}# other\n")
    refused = workspace.prime("env", "push", "fixed-bytes", code=1)
    assert "already exists" in refused.stderr
    assert "--auto-bump" in refused.stderr
    assert '"0.1.0"' in (folder / "pyproject.toml").read_text()
    bumped = workspace.json("env", "push", "fixed-bytes", "--auto-bump")
    assert bumped["version"] == "0.1.1"
    versions = workspace.json("env", "version", "list", f"{owner_of(workspace)}/fixed-bytes")["versions"]
    assert isinstance(versions, list)
    assert [row["version"] for row in versions] == ["0.1.1", "0.1.0"]


def test_the_same_name_and_version_of_another_owner_is_another_environment(
    workspace: Workspace, venv: Path, hub: RunningHub
) -> None:
    for owner in ("first-owner", "second-owner"):
        workspace.write("same-version", code=f"{CODE}OWNER = {owner!r}\n")
        workspace.prime("env", "upload", "same-version", PRIME_API_KEY=hub.key_of(owner))
    shutil.rmtree(workspace.folder / "environments")
    command = [str(venv / "bin/python"), "-c", "import same_version; print(same_version.OWNER)"]
    for owner in ("first-owner", "second-owner"):
        workspace.prime("env", "install", f"{owner}/same-version")
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == owner
    kept = workspace.prime("env", "install", "--no-upgrade", "first-owner/same-version")
    assert "is installed already" in kept.stdout


def test_a_local_environment_is_installed_so_that_edits_take_effect(workspace: Workspace, tmp_path: Path) -> None:
    python = interpreter_with_build_tools(tmp_path / "venv")
    folder = workspace.write("local-one")
    here = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    assert "local-one 0.1.0 installed" in workspace.prime("env", "install", "local-one", **here).stdout
    (folder / "local_one.py").write_text(f"{CODE}EDITED = True\n")
    subprocess.run([str(python), "-c", "import local_one; assert local_one.EDITED"], check=True, cwd="/")
    assert "is installed already" in workspace.prime("env", "install", "./environments/local_one", **here).stdout
    assert "removed" in workspace.prime("env", "uninstall", "local-one", **here).stdout


def interpreter_with_build_tools(folder: Path) -> Path:
    """Make an interpreter that sees what this one has installed and installs into a place of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def test_a_private_environment_is_for_its_owner(workspace: Workspace, hub: RunningHub) -> None:
    workspace.write("just-mine")
    workspace.prime("env", "upload", "just-mine", "-v", "private")
    name = f"{owner_of(workspace)}/just-mine"
    stranger = workspace.prime("env", "install", name, code=1, PRIME_API_KEY=hub.key_of("a-stranger"))
    assert "not found" in stranger.stderr
    nobody = workspace.prime("env", "install", name, code=1, PRIME_API_KEY="")
    assert "prime login" in nobody.stderr
    assert "installed" in workspace.prime("env", "install", name).stdout


def test_a_wheel_alone_can_be_published_and_its_source_cannot_be_pulled(workspace: Workspace) -> None:
    folder = workspace.write("wheel-alone")
    workspace.prime("env", "build", "wheel-alone")
    wheel = next((folder / "dist").glob("*.whl"))
    wheel.rename(workspace.folder / wheel.name)
    name = f"{owner_of(workspace)}/wheel-alone"
    workspace.prime("env", "upload", wheel.name)
    assert "is already published" in workspace.prime("env", "upload", wheel.name).stdout
    assert "published without its source" in workspace.prime("env", "pull", name, code=1).stderr
    assert workspace.json("env", "info", name)["version"] == "0.1.0"


def test_a_pulled_environment_has_the_sources_that_were_pushed(workspace: Workspace) -> None:
    folder = workspace.write("pull-me")
    workspace.prime("env", "upload", "pull-me")
    pulled = workspace.json("env", "pull", f"{owner_of(workspace)}/pull-me")
    assert pulled["path"] == "environments/pull_me-1"
    assert (workspace.folder / "environments/pull_me-1/pull_me.py").read_text() == (folder / "pull_me.py").read_text()
    again = workspace.prime("env", "pull", f"{owner_of(workspace)}/pull-me", "-t", "environments/pull_me", code=1)
    assert "is there already" in again.stderr


def test_the_list_shows_what_others_wrote_as_it_is(workspace: Workspace) -> None:
    workspace.write("odd-words")
    workspace.prime("env", "upload", "odd-words")
    owner = owner_of(workspace)
    assert "A toy [/]." in workspace.prime("env", "ls", "--owner", owner).stdout
    listed = workspace.json("env", "list", "--mine")
    assert listed["total"] == 1
    assert "A toy [/]." in workspace.prime("env", "info", f"{owner}/odd-words").stdout


def test_one_failing_install_does_not_stop_the_others_and_the_exit_code_tells(workspace: Workspace) -> None:
    owner = owner_of(workspace)
    workspace.write("works-well")
    workspace.prime("env", "upload", "works-well")
    result = workspace.prime("env", "install", f"{owner}/works-wel", f"{owner}/works-well", "not-local", code=1)
    assert "works-well 0.1.0 installed" in result.stdout
    assert f"did you mean {owner}/works-well" in result.stderr  # other owners may be offered behind it
    assert "OWNER/not-local" in result.stderr


def test_upload_without_login_is_one_line_and_a_hint(workspace: Workspace) -> None:
    workspace.write("no-login")
    result = workspace.prime("env", "upload", "no-login", code=1, PRIME_API_KEY="")
    assert result.stderr.splitlines() == [
        f"error: not logged in to {workspace.environment['PRIME_API_BASE_URL']}",
        "hint: run `prime login`",
    ]


def test_a_hub_that_does_not_answer_is_one_line_and_a_hint(workspace: Workspace) -> None:
    result = workspace.prime("env", "install", "a/b", code=1, PRIME_API_BASE_URL="http://127.0.0.1:9")
    assert result.stderr.startswith("error: a/b: no hub answers at http://127.0.0.1:9\nhint: ")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = 1\n", "does not define `load_environment`"),
        (f"import not_there\n{CODE}", "tiny_bad.py, line 1, in <module>"),
        ("def load_environment(:\n", "line 1: invalid syntax"),
    ],
)
def test_an_environment_that_does_not_load_is_neither_built_nor_uploaded(
    code: str, words: str, workspace: Workspace
) -> None:
    folder = workspace.write("tiny-bad", code=code)
    for command in ("build", "upload", "check"):
        assert words in workspace.prime("env", command, "tiny-bad", code=1).stderr
    assert not (folder / "dist").exists()
    assert workspace.json("env", "list", "--mine")["total"] == 0


def test_wrong_usage_exits_with_2(workspace: Workspace) -> None:
    for arguments in (["init"], ["init", "json"], ["upload", "-v", "secret"], ["install", "--with", "conda", "a/b"]):
        workspace.prime("env", *arguments, code=2)
    workspace.prime("env", "info", "a/b/c", code=2)
    assert list(workspace.folder.iterdir()) == []
