"""A workspace with the reverse-text environment and a tiny model, and the `prime` command to run in it."""

from __future__ import annotations

import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_cli.core.resources import resource_path

Prime = Callable[..., subprocess.CompletedProcess[str]]


def write_reverse_text(workspace: Path) -> None:
    """Fill the template in, as `env init` would."""
    source = resource_path("templates/environment/reverse-text")
    folder = workspace / "environments" / "reverse_text"
    folder.mkdir(parents=True)
    names = {"module": "reverse_text", "distribution": "reverse-text"}
    for name in ("MODULE.py", "pyproject.toml"):
        text = string.Template((source / name).read_text()).safe_substitute(names)
        (folder / name.replace("MODULE", "reverse_text")).write_text(text)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace with the reverse-text environment in it."""
    write_reverse_text(tmp_path)
    return tmp_path


@pytest.fixture
def prime(workspace: Path) -> Prime:
    """Run `prime` in the workspace and return what it did."""

    def run(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "prime_cli.main", *arguments]
        return subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=timeout)

    return run
