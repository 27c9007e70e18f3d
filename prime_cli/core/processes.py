"""Child processes that never outlive their parent, and are ended with everything that they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
_PARENT_VARIABLE = "PRIME_PARENT_PID"

RUN_PREFIX = "PRIME_RUN_"
"""How the names of environment variables begin that only a run's own processes may see: they hold its secrets."""


def child_environment(**variables: str) -> dict[str, str]:
    """Return the environment for a child that calls `die_with_parent`: this process's own, its pid, and `variables`."""
    return os.environ | {_PARENT_VARIABLE: str(os.getpid())} | variables


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies, however that happens. Linux only; elsewhere a no-op."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that died before the call above is not noticed by the kernel; who it was stands in the environment.
    expected = os.environ.get(_PARENT_VARIABLE)
    if expected is not None and os.getppid() != int(expected):
        sys.exit("the parent process is gone")


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM stop what runs inside as Ctrl-C does, so that it is wound up and nothing is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous: Any = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def tail(path: Path, lines: int = 15) -> list[str]:
    """Return the last lines of a text file, or none when it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def describe_exit(returncode: int) -> str:
    """Say in words how a process ended: `exit code 3`, `killed by SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def end_process_groups(processes: Iterable[subprocess.Popen[bytes]], *, grace_s: float = 5.0) -> None:
    """End processes that lead their own groups: SIGTERM, after `grace_s` SIGKILL to whatever is left of a group."""
    everyone = list(processes)
    for process in everyone:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for process in everyone:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    for process in everyone:
        _signal_group(process, signal.SIGKILL)
        process.wait(timeout=10)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The leader's pid stays the group's id while any member lives, even after the leader was reaped.
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
