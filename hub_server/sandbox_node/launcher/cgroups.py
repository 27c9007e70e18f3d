"""Control groups of sandboxes: version 1 and version 2 behind one interface.

For a sandbox there are two groups, one in the other. The outer one holds the agent and the share of processor time;
`jobs` holds all that the agent starts, and is as large as the sandbox's limits say. So a job that wants too much
memory or too many processes meets its own limit, and the agent stays.

    <hierarchy>/prime-sandboxes/<instance>/<sandbox>/jobs

`<instance>` is one launcher's; it keeps a lock on it, so that another launcher can tell what was left behind by a dead
one and removes that, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.specification import MEBIBYTE, Limits

FAMILY = "prime-sandboxes"
JOBS = "jobs"
CONTAINER = "container"  # made by a container runtime that insists on one, beside or below the agent's
CONTROLLERS = ("memory", "pids", "cpu")
ALL_ON = " ".join(f"+{name}" for name in CONTROLLERS)
_OF_JOBS = ("memory", "pids")  # each that jobs have to join costs every command some time

_SHARE_OF_CONNECTIONS = 8  # of the memory of a sandbox
_AGENT_MEMORY = 64 * MEBIBYTE  # what the outer group has beside the jobs: the agent, and files that it writes
_AGENT_PROCESSES = 16
_PERIOD_US = 100_000


@dataclass(frozen=True)
class Host:
    """What there is on the host for everybody."""

    memory_bytes: int
    processes: int


def host_size() -> Host:
    """Return how much memory the host has, and how many processes it can have."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = [_number(Path("/proc/sys/kernel", name)) for name in ("pid_max", "threads-max")]
    return Host(memory, min(number for number in most if number is not None))


class Groups:
    """The control groups of one launcher: its folders by controller."""

    version: int

    def __init__(self, homes: Mapping[str, Path]) -> None:
        self.homes = dict(homes)
        self._lock: int | None = None

    # What differs between the versions.

    def _prepare(self, folder: Path) -> None:
        """Let the groups below `folder` have the controllers."""

    def _limit(self, name: str, outer: Path, limits: Limits) -> None:
        raise NotImplementedError

    def _limit_all(self, name: str, home: Path, host: Host) -> None:
        """Leave the host some of what all sandboxes of this launcher together could take."""
        raise NotImplementedError

    def oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory."""
        raise NotImplementedError

    def agent_oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory and were none of its jobs."""
        raise NotImplementedError

    def memory_bytes(self, sandbox: str) -> int | None:
        """Return how much memory the sandbox holds now."""
        raise NotImplementedError

    # What is the same.

    def open(self) -> None:
        """Make the launcher's own groups, and remove those of launchers that are gone."""
        families = _once(home.parent for home in self.homes.values())
        for family in families:
            family.mkdir(exist_ok=True)
            self._prepare(family.parent)
            self._prepare(family)
        guard = os.open(families[0], os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Between making the folder and locking it, another launcher would take it for a dead one's.
            fcntl.flock(guard, fcntl.LOCK_EX)
            self._remove_leftovers(families)
            homes = _once(self.homes.values())
            for home in homes:
                home.mkdir()
                self._prepare(home)
            host = host_size()
            for name, home in self.homes.items():
                self._limit_all(name, home, host)
            self._lock = os.open(homes[0], os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            os.close(guard)

    def close(self) -> None:
        """Remove the launcher's own groups; the sandboxes' must be gone."""
        for home in _once(self.homes.values()):
            remove_tree(home)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def make(self, sandbox: str, limits: Limits) -> list[int]:
        """Make a sandbox's groups with their limits, join the outer one, and return descriptors to join `jobs`."""
        homes = _once(self.homes.values())
        for home in homes:
            home.joinpath(sandbox).mkdir()
        limiting = _once(self.homes[name] for name in _OF_JOBS)
        for home in limiting:
            home.joinpath(sandbox, JOBS).mkdir()
        for name, home in self.homes.items():
            self._limit(name, home / sandbox, limits)
        for home in homes:
            home.joinpath(sandbox, "cgroup.procs").write_text("0")
        return [os.open(home / sandbox / JOBS / "cgroup.procs", os.O_WRONLY) for home in limiting]

    def hold(self, sandbox: str) -> bool:
        """Tell whether the sandbox is in a group of every controller."""
        return all(processes_below(home / sandbox) for home in self.homes.values())

    def processes(self, sandbox: str) -> list[int]:
        """Return the process ids that are in the sandbox's groups."""
        return processes_below(next(iter(self.homes.values())) / sandbox)

    def remove(self, sandbox: str) -> bool:
        """Remove a sandbox's groups; tell whether they are gone."""
        gone = True
        for home in _once(self.homes.values()):
            for folder in (home / sandbox / CONTAINER, home / sandbox / JOBS, home / sandbox):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    gone = False
        return gone

    def _remove_leftovers(self, families: list[Path]) -> None:
        names = {entry.name for family in families for entry in family.iterdir() if entry.is_dir()}
        for name in names:
            first = families[0] / name
            try:
                lock = os.open(first, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                lock = None  # it got no further than one hierarchy, or was half removed
            try:
                if lock is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            else:
                for family in families:
                    remove_tree(family / name)
            finally:
                if lock is not None:
                    os.close(lock)


class VersionOne(Groups):
    """Hierarchies of their own for memory, processes and processor time."""

    version = 1

    def _limit(self, name: str, outer: Path, limits: Limits) -> None:
        if name == "memory":
            for group, size in ((outer, limits.memory_bytes + _AGENT_MEMORY), (outer / JOBS, limits.memory_bytes)):
                group.joinpath("memory.limit_in_bytes").write_text(str(size))
                with_swap = group / "memory.memsw.limit_in_bytes"
                if with_swap.exists():
                    with_swap.write_text(str(size))
                else:
                    group.joinpath("memory.swappiness").write_text("0")
                # Version 1 counts what waits in connections apart from all else, and not at all without a limit.
                connections = group / "memory.kmem.tcp.limit_in_bytes"
                if connections.exists():
                    connections.write_text(str(size // _SHARE_OF_CONNECTIONS))
        elif name == "pids":
            outer.joinpath("pids.max").write_text(str(limits.processes + _AGENT_PROCESSES))
            outer.joinpath(JOBS, "pids.max").write_text(str(limits.processes))
        elif name == "cpu":
            outer.joinpath("cpu.cfs_period_us").write_text(str(_PERIOD_US))
            outer.joinpath("cpu.cfs_quota_us").write_text(str(_quota_us(limits)))
            _allow_burst(outer / "cpu.cfs_burst_us", limits)

    def oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory."""
        jobs = _field(f"{self.homes['memory']}/{sandbox}/{JOBS}/memory.oom_control", b"oom_kill")
        agent = self.agent_oom_kills(sandbox)
        return None if jobs is None and agent is None else (jobs or 0) + (agent or 0)

    def agent_oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory and were none of its jobs."""
        return _field(f"{self.homes['memory']}/{sandbox}/memory.oom_control", b"oom_kill")

    def memory_bytes(self, sandbox: str) -> int | None:
        """Return how much memory the sandbox holds now."""
        return _number(self.homes["memory"] / sandbox / "memory.usage_in_bytes")

    def _limit_all(self, name: str, home: Path, host: Host) -> None:
        if name == "memory":
            home.joinpath("memory.limit_in_bytes").write_text(str(host.memory_bytes * 9 // 10))
        elif name == "pids":
            home.joinpath("pids.max").write_text(str(host.processes * 3 // 4))


class VersionTwo(Groups):
    """One hierarchy for all."""

    version = 2

    def _prepare(self, folder: Path) -> None:
        folder.joinpath("cgroup.subtree_control").write_text(ALL_ON)

    def make(self, sandbox: str, limits: Limits) -> list[int]:
        """Make a sandbox's groups with their limits, join the outer one's own, and return a descriptor of `jobs`."""
        # A group with controllers for groups below it may hold no process itself, so the agent has one beside `jobs`.
        outer = self.homes["memory"] / sandbox
        outer.mkdir()
        self._prepare(outer)
        agent = outer / "agent"
        agent.mkdir()
        outer.joinpath(JOBS).mkdir()
        for name in self.homes:
            self._limit(name, outer, limits)
        agent.joinpath("cgroup.procs").write_text("0")
        return [os.open(outer / JOBS / "cgroup.procs", os.O_WRONLY)]

    def remove(self, sandbox: str) -> bool:
        """Remove a sandbox's groups; tell whether they are gone."""
        for folder in (f"agent/{CONTAINER}", "agent"):
            try:
                self.homes["memory"].joinpath(sandbox, folder).rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return False
        return super().remove(sandbox)

    def _limit(self, name: str, outer: Path, limits: Limits) -> None:
        if name == "memory":
            for group, size in ((outer, limits.memory_bytes + _AGENT_MEMORY), (outer / JOBS, limits.memory_bytes)):
                group.joinpath("memory.max").write_text(str(size))
                swap = group / "memory.swap.max"
                if swap.exists():
                    swap.write_text("0")
        elif name == "pids":
            outer.joinpath("pids.max").write_text(str(limits.processes + _AGENT_PROCESSES))
            outer.joinpath(JOBS, "pids.max").write_text(str(limits.processes))
        elif name == "cpu":
            outer.joinpath("cpu.max").write_text(f"{_quota_us(limits)} {_PERIOD_US}")
            _allow_burst(outer / "cpu.max.burst", limits)

    def _limit_all(self, name: str, home: Path, host: Host) -> None:
        if name == "memory":
            home.joinpath("memory.max").write_text(str(host.memory_bytes * 9 // 10))
        elif name == "pids":
            home.joinpath("pids.max").write_text(str(host.processes * 3 // 4))

    def oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory."""
        return _field(f"{self.homes['memory']}/{sandbox}/memory.events", b"oom_kill")  # counts what is below it too

    def agent_oom_kills(self, sandbox: str) -> int | None:
        """Return how many processes of the sandbox were killed for want of memory and were none of its jobs."""
        return _field(f"{self.homes['memory']}/{sandbox}/agent/memory.events", b"oom_kill")

    def memory_bytes(self, sandbox: str) -> int | None:
        """Return how much memory the sandbox holds now."""
        return _number(self.homes["memory"] / sandbox / "memory.current")


def of_launcher(version: int, homes: Mapping[str, str]) -> Groups:
    """Return the groups of another process's launcher, to look at."""
    return (VersionOne if version == 1 else VersionTwo)({name: Path(home) for name, home in homes.items()})


def processes_below(folder: Path) -> list[int]:
    """Return the process ids in a group and in those below it."""
    found: list[int] = []
    for group in (folder, *_children(folder)):
        try:
            found += [int(pid) for pid in group.joinpath("cgroup.procs").read_text().split()]
        except OSError:
            continue
    return found


def remove_tree(folder: Path, patience_s: float = 2.0) -> None:
    """Kill what is in a group and in those below it, and remove them all."""
    deadline = time.monotonic() + patience_s
    while folder.is_dir():
        for pid in processes_below(folder):
            if pid > 1:
                _kill(pid)
        for group in sorted((*_children(folder), folder), key=lambda path: -len(path.parts)):
            try:
                group.rmdir()
            except OSError:
                continue
        if not folder.is_dir() or time.monotonic() > deadline:
            return
        time.sleep(0.002)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(folder: Path) -> list[Path]:
    try:
        own = [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []
    return own + [below for entry in own for below in _children(entry)]


def _once(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))  # hierarchies may carry several controllers


def _quota_us(limits: Limits) -> int:
    return max(1000, int(limits.cpu_cores * _PERIOD_US))


def _allow_burst(file: Path, limits: Limits) -> None:
    """Let a group use later what it did not use of its share, up to that of one period, where the kernel can (5.14).

    Without it a command that needs two processors for a few milliseconds may wait for the rest of a period, although
    its sandbox did nothing before.
    """
    if file.exists():
        file.write_text(str(_quota_us(limits)))


def _number(file: Path) -> int | None:
    content = _content(str(file))
    return None if content is None else int(content)


def _field(file: str, name: bytes) -> int | None:
    content = _content(file)
    if content is None:
        return None
    return next((int(line.split()[1]) for line in content.splitlines() if line.startswith(name + b" ")), None)


def _content(file: str) -> bytes | None:
    """Return what a file of the kernel's holds. Each start of a command asks, so it is read without path or stream."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 65536)
    except OSError:
        return None
    finally:
        os.close(fd)
