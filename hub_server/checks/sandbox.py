"""Runs a command through `isolate.py` and watches it: time, memory, the amount of what it says."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hub_server.checks import isolate

_ISOLATE = Path(isolate.__file__)
_MEBIBYTE = 1024**2
_WATCH_EVERY_S = 0.2
_KEPT_OUTPUT = 64 * 1024
_MOST_RESULTS = 256 * 1024
_NICE = 10
# What a program needs of a machine to start: libraries, time zones, certificates, names of hosts. No configuration.
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/alternatives", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
    "/etc/hosts", "/etc/resolv.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/pki",
)  # fmt: skip


class Isolation(StrEnum):
    """How a check is kept from the rest of the machine."""

    NAMESPACES = "namespaces"
    NONE = "none"


@dataclass(frozen=True)
class Limits:
    """What one command may use. `memory_bytes` counts all its processes together."""

    time_s: float
    memory_bytes: int
    processes: int = 512
    file_bytes: int = 2 * 1024**3
    scratch_bytes: int = 512 * _MEBIBYTE


@dataclass(frozen=True)
class Confinement:
    """One command, and all that it can reach. `root` is an empty folder under which its file system is made."""

    argv: list[str]
    environment: dict[str, str]
    cwd: str
    root: Path
    isolation: Isolation
    read_only: Iterable[Path] = ()
    writable: Iterable[Path] = ()
    hidden: Iterable[Path] = ()
    network: bool = False


@dataclass
class Ended:
    """How a command ended. `stopped_for` names the limit that it went over; `results` is what it said of itself."""

    exit_code: int
    stopped_for: str | None = None
    output: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    duration_s: float = 0.0
    peak_memory_bytes: int = 0


def available_isolation(scratch: Path) -> tuple[Isolation | None, str]:
    """Return the isolation that this machine offers, and the reason where there is none."""
    if sys.platform != "linux":
        return None, "namespaces need Linux"
    root = scratch / "root"
    root.mkdir(parents=True, exist_ok=True)
    confinement = Confinement(["/usr/bin/env", "true"], {"PATH": "/usr/bin:/bin"}, "/", root, Isolation.NAMESPACES)
    ended = run_confined(confinement, Limits(time_s=20, memory_bytes=512 * _MEBIBYTE))
    if ended.exit_code == 0:
        return Isolation.NAMESPACES, ""
    return None, ended.output.strip().removeprefix("cannot isolate: ") or f"exit code {ended.exit_code}"


def run_confined(what: Confinement, limits: Limits, on_tick: Callable[[], None] = lambda: None) -> Ended:
    """Run a command to its end, or to that of its limits; nothing that it started lives on.

    It may write results to the descriptor named by RESULTS_FD, one JSON object a line. `on_tick` is called every
    fifth of a second meanwhile.
    """
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_ISOLATE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(write_end,), env={},
        start_new_session=True,
    )  # fmt: skip
    os.close(write_end)
    assert process.stdin is not None
    assert process.stdout is not None
    started = time.monotonic()
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(_spec(what, limits, write_end)).encode())
        watched = _Watch(process, limits, started)
        watched.follow({process.stdout.fileno(): watched.output, read_end: watched.results}, on_tick)
    finally:
        _kill(process)
        process.stdout.close()
        os.close(read_end)
    # A signal that ended the launcher itself is one of ours.
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ended(
        exit_code=code,
        stopped_for=watched.stopped_for,
        output=watched.output.text(),
        results=watched.results.lines(),
        duration_s=time.monotonic() - started,
        peak_memory_bytes=watched.peak_bytes,
    )


def base_interpreter() -> Path:
    """Return the interpreter that environments of checks are made with, outside of any virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = Path(sys.base_prefix) / "bin" / name
    return (found if found.exists() else Path(sys.executable)).resolve()


def _spec(what: Confinement, limits: Limits, results_fd: int) -> dict[str, Any]:
    system = _outermost([*_SYSTEM, str(base_interpreter().parent), sys.base_prefix, sysconfig.get_paths()["stdlib"]])
    return {
        "namespaces": what.isolation is Isolation.NAMESPACES,
        "network": what.network,
        "root": str(what.root),
        "system": system,
        "read_only": [path for path in map(str, what.read_only) if not _lies_in(path, system)],
        "writable": [str(path) for path in what.writable],
        "hidden": [str(path) for path in what.hidden],
        "scratch_bytes": limits.scratch_bytes,
        "nice": _NICE,
        "cwd": what.cwd,
        "argv": what.argv,
        "env": {**what.environment, "RESULTS_FD": str(results_fd)},
        "limits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(limits.time_s * 4) + 1,
            "RLIMIT_NPROC": limits.processes,
            "RLIMIT_NOFILE": 4096,
            "RLIMIT_FSIZE": limits.file_bytes,
            # A backstop between two looks at the memory that is in use; reserved and unused address space is free.
            "RLIMIT_DATA": limits.memory_bytes * 2,
        },
    }


def _outermost(paths: list[str]) -> list[str]:
    """Leave out what is named twice, and paths that lie in another one of the list."""
    return [path for path in dict.fromkeys(paths) if not _lies_in(path, paths)]


def _lies_in(path: str, folders: list[str]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


class _Tail:
    """Keeps the beginning or the end of what is written, so that a flood costs no memory."""

    def __init__(self, most: int, *, keep_end: bool) -> None:
        self._data, self._most, self._keep_end = bytearray(), most, keep_end
        self._lost = 0

    def add(self, data: bytes) -> None:
        self._data += data
        excess = len(self._data) - self._most
        if excess > 0:
            self._lost += excess
            del self._data[slice(None, excess) if self._keep_end else slice(self._most, None)]

    def text(self) -> str:
        """Return what was kept as text, without characters that neither terminals nor databases like."""
        text = self._data.decode(errors="replace")
        plain = "".join(letter for letter in text if letter in "\n\t" or letter.isprintable())
        return f"… {self._lost} bytes before this are left out\n{plain}" if self._lost and self._keep_end else plain

    def lines(self) -> list[dict[str, Any]]:
        """Return the JSON objects among the lines; whatever else was written there is nobody's."""
        found = []
        for line in self._data.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # what is no JSON fails here
                if isinstance(value, dict):
                    found.append(value)
        return found


class _Watch:
    """Follows a running command and ends it when it goes over a limit."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, started: float) -> None:
        self._process, self._limits, self._started = process, limits, started
        self.output = _Tail(_KEPT_OUTPUT, keep_end=True)
        self.results = _Tail(_MOST_RESULTS, keep_end=False)
        self.stopped_for: str | None = None
        self.peak_bytes = 0

    def follow(self, pipes: dict[int, _Tail], on_tick: Callable[[], None]) -> None:
        """Read until the process has ended and its pipes are dry."""
        with selectors.DefaultSelector() as selector:
            for descriptor in pipes:
                selector.register(descriptor, selectors.EVENT_READ)
            next_look = 0.0
            ended_at = None
            while selector.get_map():
                for key, _ in selector.select(_WATCH_EVERY_S):
                    data = os.read(key.fd, 65536)
                    pipes[key.fd].add(data)
                    if not data:
                        selector.unregister(key.fd)
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _WATCH_EVERY_S
                    on_tick()
                    self._look()
                if self._process.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > 1:  # what it left behind holds the pipes open
                        return
        self._process.wait()

    def _look(self) -> None:
        if self.stopped_for is not None:
            return
        used = _memory_of_tree(self._process.pid)
        self.peak_bytes = max(self.peak_bytes, used)
        if used > self._limits.memory_bytes:
            self.stopped_for = f"it used more than {self._limits.memory_bytes // _MEBIBYTE} MiB of memory"
        elif time.monotonic() - self._started > self._limits.time_s:
            self.stopped_for = f"it was not done after {self._limits.time_s:g} s"
        if self.stopped_for is not None:
            _kill(self._process)


def _memory_of_tree(pid: int) -> int:
    """Return the memory that a process and all below it hold, in bytes; 0 where this cannot be known."""
    total = 0
    for each in _tree(pid):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def _tree(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{current}/task"):
                waiting += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started: what left its process group hangs on the launcher all the same."""
    if process.poll() is None:
        for pid in reversed(_tree(process.pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
