"""What the checks look at, all handed to them: folders, interpreters, variables, other programs and the network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from prime_cli.environments.workspace import workspace_python

_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S = 2.0, 5.0
_NOT_THERE = 127

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What this machine calls itself in a URL."""


@dataclass(frozen=True)
class Ran:
    """How a program ended; 127 when there is none of that name, 124 when it took too long."""

    code: int
    output: str = ""


@dataclass(frozen=True)
class Answer:
    """What a server answered. `status` is None when none did, and `problem` says why."""

    status: int | None
    data: Any = None
    seconds: float = 0.0
    problem: str = ""


Run = Callable[[Sequence[str], float], Ran]
"""Runs a program, given at most so many seconds."""

Fetch = Callable[[str, Mapping[str, str]], Answer]
"""Asks a URL, with these headers."""


@dataclass(frozen=True)
class Surroundings:
    """A workspace and the machine around it. `python` runs environments, `own_python` runs this tool."""

    workspace: Path
    python: Path
    own_python: Path
    variables: Mapping[str, str]
    run: Run
    fetch: Fetch


def these_surroundings(workspace: Path) -> Surroundings:
    """Return what is really there."""
    return Surroundings(workspace, workspace_python(workspace), Path(sys.executable), os.environ, run_program, ask)


def run_program(command: Sequence[str], timeout_s: float) -> Ran:
    """Run a program without input; see `Ran` for what comes of one that is not there."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
    except OSError:
        return Ran(_NOT_THERE)
    except subprocess.TimeoutExpired:
        return Ran(124)
    return Ran(done.returncode, done.stdout or done.stderr)


def ask(url: str, headers: Mapping[str, str]) -> Answer:
    """GET a URL within a few seconds; the answer's JSON, where it is some."""
    started = time.monotonic()
    try:
        timeout = httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        # A proxy of the environment never stands before a server on this machine.
        proxied = urlsplit(url).hostname not in LOOPBACK
        response = httpx.get(url, headers=dict(headers), timeout=timeout, follow_redirects=True, trust_env=proxied)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        words = next(iter(str(error).splitlines()), "") or type(error).__name__
        return Answer(None, problem=words)
    try:
        data = response.json()
    except ValueError:
        data = None
    return Answer(response.status_code, data, time.monotonic() - started)
