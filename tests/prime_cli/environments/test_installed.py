from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.installed import find_installed, inspect_interpreter

CACHED = "file:///home/a%20b/.prime/wheel_cache/alice/toy/1.0/dist/toy-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def put(venv: Path, name: str, code: str, direct_url: dict[str, Any] | None = None) -> Path:
    """Install a distribution by hand, as an installer leaves it; return the interpreter."""
    site = next(venv.glob("lib/python*/site-packages"))
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(code)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n")
    if direct_url is not None:
        (about / "direct_url.json").write_text(json.dumps(direct_url))
    return venv / "bin" / "python"


@pytest.mark.parametrize(
    "direct_url",
    [
        {"url": CACHED, "archive_info": {"hashes": {"sha256": "ab12"}}},
        {"url": CACHED, "archive_info": {"hash": "sha256=ab12"}},
        {"url": f"{CACHED}#sha256=ab12", "archive_info": {}},
    ],
    ids=["pip", "older pip", "uv"],
)
def test_the_hash_and_the_owner_of_a_hubs_wheel_are_known_after_either_installer(
    direct_url: dict[str, Any], venv: Path
) -> None:
    python = put(venv, "toy", "def load_environment(): ...\n", direct_url)
    found = find_installed(python, "toy")
    assert found is not None
    assert (found.version, found.sha256, found.origin) == ("1.0", "ab12", "alice/toy")


def test_only_environments_are_listed(venv: Path) -> None:
    put(venv, "library", "x = 1\n")
    python = put(venv, "toy", "def load_environment(): ...\n")
    interpreter = inspect_interpreter(python)
    assert list(interpreter.distributions) == ["toy"]
    assert not interpreter.has_pip
    assert inspect_interpreter(python, "library", "nothing").present == {"library"}


def test_an_interpreter_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="does not run"):
        inspect_interpreter(tmp_path / "python")
