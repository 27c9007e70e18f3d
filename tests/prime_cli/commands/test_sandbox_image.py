"""`prime sandbox image` on the store of a node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_cli.main import main

Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Prime:
    """Run `prime sandbox image` on a store of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = ["prime", "sandbox", "image", *arguments, "--data-dir", str(tmp_path), "--output", "json"]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), captured.out, captured.err)

    return run


def test_an_alias_is_given_listed_and_taken_back(image: Prime) -> None:
    assert json.loads(image("alias", "python:3.11-slim", "host").stdout)["alias_of"] == "host"
    listed = json.loads(image("list").stdout)["images"]
    assert [(each["name"], each["alias_of"]) for each in listed] == [("host", None), ("python:3.11-slim", "host")]
    assert json.loads(image("remove", "python:3.11-slim").stdout) == {
        "name": "python:3.11-slim", "files_removed": True,
    }  # fmt: skip
    assert len(json.loads(image("list").stdout)["images"]) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("alias", "mine", "nothing:1"), "no image nothing:1"),
        (("remove", "nothing:1"), "no image nothing:1"),
        (("remove", "host"), "host cannot be removed"),
        (("import", "/nowhere.tar", "mine:1"), "/nowhere.tar"),
        (("pull", "nothing:1", "--registry", "docker.io=http://127.0.0.1:9"), "no image nothing:1"),
        (("pull", "nothing:1", "--registry", "ftp://x"), "is no registry"),
    ],
)
def test_what_cannot_be_is_one_line(image: Prime, line: tuple[str, ...], words: str) -> None:
    if "docker.io" in " ".join(line) and shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    done = image(*line)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in json.loads(done.stderr)["error"]
