"""What sandboxes could leave behind on a host: processes, control groups, mounts, folders, descriptors."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FAMILY = "prime-sandboxes"  # the control group that holds those of all launchers of a host


@dataclass(frozen=True)
class Process:
    """A process, which another one of the same number is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process of this number; None when there is none, or only its remains."""
        try:
            state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else cls(pid, rest[18])

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return Process.of(self.pid) == self


def descendants(pid: int, depth: int = 100) -> list[int]:
    """Return all processes below one, down to `depth` generations."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    generation = [pid]
    for _ in range(depth):
        generation = [child for parent in generation for child in children.get(parent, [])]
        found += generation
    return found


def are_gone(processes: Iterable[Process], within_s: float = 10) -> bool:
    """Tell whether none of these processes is left, waiting a while for the kernel to end them."""
    deadline = time.monotonic() + within_s
    while left := [process for process in processes if process.lives]:
        if time.monotonic() > deadline:
            return False
        processes = left
        time.sleep(0.02)
    return True


def control_groups_of(pids: list[int]) -> set[Path]:
    """Return the folders of the control groups of sandboxes that these processes are in, and of their launcher."""
    folders = {folder for pid in pids for folder in _groups(pid)}
    above = {parent for folder in folders for parent in folder.parents}
    return {folder for folder in folders | above if FAMILY in (part.name for part in folder.parents)}


def _groups(pid: int) -> set[Path]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for root in _hierarchies().get(controllers.removeprefix("name="), []):
            found.add(root / path.lstrip("/"))
    return found


@functools.cache
def _hierarchies() -> dict[str, list[Path]]:
    """Return where each hierarchy of control groups is mounted, by its controllers; version 2 has none in its name."""
    found: dict[str, list[Path]] = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            found.setdefault("", []).append(Path(where))
        elif kind == "cgroup":
            found.setdefault(Path(where).name, []).append(Path(where))
    return found


def mounts(own: Path) -> list[str]:
    """Return what is mounted where, as this process sees it; without what other tests mount meanwhile in their folders.

    `own` is the folder of the test that asks.
    """
    lines = [line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    of_tests = f"{tempfile.gettempdir()}/pytest-of-"
    return sorted(line for line in lines if f" {own}" in line or f" {of_tests}" not in line)


def open_files(pid: int) -> int:
    """Return how many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))
