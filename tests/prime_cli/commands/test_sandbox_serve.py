"""`prime sandbox serve`: how it begins, refuses and ends; what a node does is tested where it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.running_hub import PRIME


def serve(*options: str, folder: Path) -> subprocess.Popen[str]:
    line = [*PRIME, "sandbox", "serve", "--output", "json", "--port", "0", "--data-dir", str(folder / "node"), *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, env=dict(os.environ), **streams)


def test_a_node_of_no_hub_says_where_it_is_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    node = serve("--no-hub", "--backend", "process", "--min-level", "none", "--ready-file", str(ready), folder=tmp_path)
    deadline = time.monotonic() + 60
    while not ready.exists():
        assert node.poll() is None, node.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    facts = json.loads(ready.read_text())
    node.send_signal(signal.SIGINT)
    shown, words = node.communicate(timeout=30)
    assert node.returncode == 130, words
    assert json.loads(shown)["url"] == facts["url"]
    assert (facts["level"], facts["backend"]) == ("none", "process")


@pytest.mark.parametrize(
    ("options", "code", "words", "hint"),
    [
        (("--no-hub", "--hub", "http://x"), 2, "exclude each other", None),
        (("--no-hub", "--backend", "bogus"), 2, "no backend 'bogus'", "process"),
        (("--no-hub", "--backend", "process"), 1, "process gives level none only", "prime sandbox doctor"),
        (("--no-hub", "--registry", "ftp://x"), 1, "is no registry", None),
        (
            ("--hub", "http://127.0.0.1:9", "--backend", "process", "--min-level", "none"),
            1,
            "no API key",
            "prime login",
        ),
    ],
)
def test_a_node_that_cannot_be_is_one_line(
    tmp_path: Path, options: tuple[str, ...], code: int, words: str, hint: str | None
) -> None:
    node = serve(*options, folder=tmp_path)
    shown, told = node.communicate(timeout=60)
    assert (node.returncode, shown) == (code, ""), told
    error = json.loads(told.splitlines()[-1])
    assert words in error["error"]
    assert hint is None or hint in error["hint"]
    assert "Traceback" not in told
