"""The processes of a run and everything that they have started: watched, paused and ended together.

A process is silent when its beat stands still, or when it is stopped by a signal; of a server that is not ours, and so
has no beat, only the latter can be seen. The orchestrator looks after its environment workers itself, replaces those
that are stuck, and the run goes on; only a stopped one that it leaves so, as while they load, ends the run. What an
environment starts is the environment's affair.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import psutil

from prime_cli.core.processes import end_process_groups
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.watchdog import Silence

_LOOK_EVERY_S = 1.0
_KILLED_WITHIN_S = 5.0
_HAS_WORKERS = "orchestrator"


@dataclass
class Member:
    """A child of the launcher. `beats` is False for programs that are not ours."""

    name: str
    process: subprocess.Popen[bytes]
    beats: bool = True
    descendants: set[psutil.Process] = field(default_factory=set)


@dataclass(frozen=True)
class Silent:
    """A process that has shown no sign of life for too long: the member's name, and in words which process it is."""

    member: Member
    who: str
    silent_s: float
    stopped: bool

    @property
    def words(self) -> str:
        """What is wrong with it."""
        how = "is stopped (by SIGSTOP, or a debugger)" if self.stopped else "is stuck"
        return f"{self.who} {how}: no sign of life for {self.silent_s:.0f} s"


class Family:
    """The members of one run, in the order in which they were started.

    Args:
        timeout_s: silence after which a process counts as stuck; 0 turns the watch off.
        startup_timeout_s: the same for a process that has not beaten yet.
        workers_timeout_s: the same for an environment worker that is stopped; longer than the orchestrator needs.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        timeout_s: float,
        startup_timeout_s: float,
        workers_timeout_s: float = 55.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.members: list[Member] = []
        self._run = run
        self._timeout_s = timeout_s
        self._startup_timeout_s = max(startup_timeout_s, timeout_s)
        self._workers_timeout_s = workers_timeout_s
        self._clock = clock
        self._looked = clock()
        self._silences: dict[object, Silence] = {}

    def add(self, member: Member) -> None:
        """Watch one more."""
        self.members.append(member)

    def silent(self) -> Silent | None:
        """Return a process that has been silent for too long; looks once a second, however often it is asked."""
        if self._clock() - self._looked < _LOOK_EVERY_S:
            return None
        self._looked = self._clock()
        self._find_descendants()
        if not self._timeout_s:
            return None
        found = [silent for member in self.members if member.process.poll() is None for silent in self._look(member)]
        return max(found, key=lambda silent: silent.stopped, default=None)  # what is stopped explains what is stuck

    def end(self, grace_s: float) -> None:
        """End all members and what they have started, by force after `grace_s`, and those that are stopped, too."""
        self._find_descendants()
        end_process_groups([member.process for member in self.members], grace_s=grace_s)
        left = [process for member in self.members for process in member.descendants]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        deadline = time.monotonic() + _KILLED_WITHIN_S
        while any(_lives(process) for process in left) and time.monotonic() < deadline:
            time.sleep(0.02)

    @contextlib.contextmanager
    def paused_with_the_launcher(self) -> Iterator[None]:
        """Let Ctrl-Z (SIGTSTP) pause the whole run, and its end (`fg`) let all of it go on."""

        def pause(number: int, frame: FrameType | None) -> None:
            self._find_descendants()
            self._signal_all(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._signal_all(signal.SIGCONT)

        previous: Any = signal.signal(signal.SIGTSTP, pause)
        try:
            yield
        finally:
            signal.signal(signal.SIGTSTP, previous)

    def _look(self, member: Member) -> Iterator[Silent]:
        if member.name == _HAS_WORKERS:
            below = [process for process in member.descendants if _parent(process) == member.process.pid]
            limit_s, called = self._workers_timeout_s, "an environment worker"
        else:
            below, limit_s, called = list(member.descendants), self._timeout_s, f"a process of the {member.name}"
        root = _process(member.process.pid)
        is_stopped = root is not None and _is_stopped(root)
        stopped = {process for process in below if _is_stopped(process)}
        if member.beats:
            explained = is_stopped or (member.name != _HAS_WORKERS and bool(stopped))
            yield from self._without_a_beat(member, explained)
        if self._silence(root).after(is_stopped or object()) >= self._timeout_s:
            yield Silent(member, f"the {member.name} process", self._silence(root).silent_s, stopped=True)
        for process in below:
            if self._silence(process).after(process in stopped or object()) >= limit_s:
                yield Silent(member, called, self._silence(process).silent_s, stopped=True)

    def _without_a_beat(self, member: Member, stopped: bool) -> Iterator[Silent]:
        beats: dict[str, int | None] = {member.name: None, **self._run.beats_of(member.name)}
        for name, beat in beats.items():
            silent_s = self._silence(name).after(beat)
            if silent_s >= (self._startup_timeout_s if beat is None else self._timeout_s):
                rank = name.removeprefix(f"{member.name}_").replace("_", " ")
                who = f"the {member.name} process" if name == member.name else f"{rank} of the {member.name}"
                yield Silent(member, who, silent_s, stopped)

    def _silence(self, key: object) -> Silence:
        return self._silences.setdefault(key, Silence(self._clock))

    def _find_descendants(self) -> None:
        """Remember who was started by whom; an orphan, too, stays a member's descendant."""
        for member in self.members:
            member.descendants = {process for process in member.descendants if process.is_running()}
        with contextlib.suppress(psutil.NoSuchProcess):
            by_pid = {process.pid: process for process in psutil.Process().children(recursive=True)}
            roots = {member.process.pid: member for member in self.members}
            for process in by_pid.values():
                root = _root_of(process, by_pid, roots)
                if root is not None and process.pid != root.process.pid:
                    root.descendants.add(process)

    def _signal_all(self, number: signal.Signals) -> None:
        for member in self.members:
            for process in [_process(member.process.pid), *member.descendants]:
                if process is not None and member.process.poll() is None:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def _lives(process: psutil.Process) -> bool:
    """Say whether a process is more than an entry that nobody has read the exit code of, as in a container."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def _root_of(process: psutil.Process, by_pid: dict[int, psutil.Process], roots: dict[int, Member]) -> Member | None:
    """Return the member that `process` is, or below which it is."""
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.pid not in roots:
            parent = by_pid.get(process.ppid())
            if parent is None:
                return None
            process = parent
        return roots[process.pid]
    return None
