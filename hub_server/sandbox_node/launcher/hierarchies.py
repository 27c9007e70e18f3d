"""Where on this host control groups can be made: which hierarchies are mounted, and which of them are ours to use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.launcher.cgroups import ALL_ON, CONTROLLERS, FAMILY, Groups, VersionOne, VersionTwo


@dataclass(frozen=True)
class Mounted:
    """A mounted hierarchy of control groups; `options` names the controllers of version 1."""

    path: Path
    kind: str  # cgroup or cgroup2
    options: frozenset[str]


def mounted(mountinfo: str) -> list[Mounted]:
    """Read what is mounted from the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(tail) >= 3 and tail[0] in ("cgroup", "cgroup2"):
            found.append(Mounted(Path(fields[4]), tail[0], frozenset(tail[2].split(","))))
    return found


def find(instance: str, mounts: list[Mounted], *, is_root: bool, for_runc: bool = False) -> tuple[Groups | None, str]:
    """Find where groups with all three controllers can be made; else say what lacks.

    `for_runc` adds the controller of devices where groups are of version 1: runc insists on it.
    """
    unified = [mount for mount in mounts if mount.kind == "cgroup2"]
    for mount in unified:
        available = _words(mount.path / "cgroup.controllers")
        if set(CONTROLLERS) <= available:
            top = mount.path if is_root and _passes_on(mount.path) else _delegated(mount.path)
            if top is None:
                return None, "no control group is delegated to this user (systemd-run --user --scope -p Delegate=yes)"
            return VersionTwo(dict.fromkeys(CONTROLLERS, top / FAMILY / instance)), ""
    homes = {}
    for name in (*CONTROLLERS, *(("devices",) if for_runc else ())):
        place = next((mount.path for mount in mounts if mount.kind == "cgroup" and name in mount.options), None)
        if place is None:
            return None, f"the control group controller `{name}` is not mounted"
        homes[name] = place / FAMILY / instance
    if not is_root:
        return None, "control groups of version 1 can be made by root only"
    return VersionOne(homes), ""


def _passes_on(top: Path) -> bool:
    """Tell whether groups below the topmost can have the controllers; not where that is a container's, in use."""
    if set(CONTROLLERS) <= _words(top / "cgroup.subtree_control"):
        return True
    try:
        top.joinpath("cgroup.subtree_control").write_text(ALL_ON)
    except OSError:
        return False
    return True


def _delegated(top: Path) -> Path | None:
    """Return our own group of version 2 if we may make groups in it and are alone there; we move aside in it."""
    line = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")), "")
    own = top / line.removeprefix("0::/")
    ours = {os.getpid(), os.getppid()}
    if not line or not os.access(own / "cgroup.subtree_control", os.W_OK):
        return None
    if not set(CONTROLLERS) <= _words(own / "cgroup.controllers"):
        return None
    inside = {int(pid) for pid in own.joinpath("cgroup.procs").read_text().split()}
    if own.name == "node" and own.parent.joinpath(FAMILY).is_dir():
        return own.parent  # an earlier launcher of this node moved it here
    if not inside <= ours:
        return None
    leaf = own / "node"
    leaf.mkdir(exist_ok=True)
    for pid in inside:
        leaf.joinpath("cgroup.procs").write_text(str(pid))
    return own


def _words(file: Path) -> set[str]:
    try:
        return set(file.read_text().split())
    except OSError:
        return set()
