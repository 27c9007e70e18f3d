"""What sandboxes could leave behind on a host: processes, control groups, mounts, folders, descriptors."""

from __future__ import annotations

import os
import time
from pathlib import Path


def processes_of(session_or_folder: str) -> dict[int, str]:
    """Return the processes whose command line names a text."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if session_or_folder in command:
            found[int(entry.name)] = command
    return found


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def are_gone(pids: list[int], within_s: float = 10) -> bool:
    """Tell whether none of these processes is left, waiting a while for the kernel to end them."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(_lives(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def control_groups_of(pids: list[int]) -> set[Path]:
    """Return the folders of the control groups that these processes are in, and this one is not."""
    return {folder for pid in pids for folder in _groups(pid)} - _groups(os.getpid())


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


def mounts() -> list[str]:
    """Return what is mounted where, as this process sees it."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split(" ", 3)[3] for line in lines)


def open_files(pid: int) -> int:
    """Return how many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))
