"""The files that operators copy: their commands exist, and systemd takes the units."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

FOLDER = Path(__file__).parent.parent / "docs" / "deploy"
UNITS = sorted(FOLDER.glob("*.service"))


def commands() -> list[list[str]]:
    """Return every command line of `prime` in these files, without `prime` itself."""
    found = [line.partition("=")[2] for unit in UNITS for line in unit.read_text().splitlines() if "ExecStart=" in line]
    parts = [shlex.split(line) for line in found]
    (shown,) = re.findall(r"^CMD (\[.*\])$", (FOLDER / "Containerfile").read_text(), re.MULTILINE)
    parts.append(json.loads(shown))
    return [words[1:] for words in parts if words[0].endswith("prime")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_of_units_and_of_the_container_are_commands_of_prime(words: list[str]) -> None:
    group, name, *arguments = words
    assert group == "hub"
    app: Any = typer.main.get_command(import_module("prime_cli.commands.hub").app)
    app.commands[name].make_context(name, arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze comes with Debian's systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in (*UNITS, *FOLDER.glob("*.timer")):
        # What is installed on the operator's machine is not on this one.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/prime/bin/prime", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_container_file_copies_what_is_there_and_installs_what_is_declared() -> None:
    text = (FOLDER / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (FOLDER.parent.parent / name).exists(), name
    project = (FOLDER.parent.parent / "pyproject.toml").read_text()
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
