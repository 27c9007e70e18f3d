"""Runtimes of OCI containers in bubblewrap's place: crun, runc, and gVisor's runsc.

The launcher makes control groups, the user ids and the root file system as ever; the runtime adds namespaces, the
system call filter and what is mounted inside, as the configuration made here says. It is told to leave groups alone.

It is started as the first process of a process id namespace of its own, so that its death, which is what the launcher
brings about to end a sandbox, is the death of all that it started. runsc gets pipes as its streams and nothing else:
it gives whatever it has as its standard streams to the user nobody, and a device there would be the host's own.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hub_server.sandbox_node.launcher import system_calls
from hub_server.sandbox_node.launcher.cgroups import CONTAINER
from hub_server.sandbox_node.launcher.hierarchies import Mounted, mounted
from hub_server.sandbox_node.launcher.orders import Create
from hub_server.sandbox_node.launcher.root_filesystem import Prepared
from hub_server.sandbox_node.launcher.uids import RANGE, IdRange

_MNT_DETACH = 2
_READ_ONLY = ("bus", "fs", "irq", "sys")
_libc = ctypes.CDLL(None, use_errno=True)


class Kind(StrEnum):
    """The runtimes that are known; others that take the same options may be given as one of these."""

    CRUN = "crun"
    RUNC = "runc"
    RUNSC = "runsc"


@dataclass(frozen=True)
class Runtime:
    """A runtime on this host, and what it enforces inside: `seccomp` is a configuration's `linux.seccomp`."""

    kind: Kind
    path: str
    seccomp: dict[str, Any]

    @property
    def shares_kernel(self) -> bool:
        """Whether what runs inside calls the host's kernel itself."""
        return self.kind is not Kind.RUNSC


def configuration(
    runtime: Runtime,
    order: Create,
    ids: IdRange | None,
    prepared: Prepared,
    *,
    agent: Sequence[str],
    environment: dict[str, str],
    capabilities: Sequence[str],
    masked: Sequence[str],
    users: Path | None,
    group: str | None,
) -> dict[str, Any]:
    """Return the content of config.json.

    `users` is the file on which the user namespace is mounted. The runtime could make one, but that would be root's:
    what the kernel counts for each user, such as bytes in message queues, all sandboxes would have together. `group`
    is the control group that the runtime is to use, if it needs one.
    """
    linux: dict[str, Any] = {"seccomp": runtime.seccomp}
    linux["namespaces"] = [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]
    if runtime.shares_kernel:
        linux["namespaces"].append({"type": "cgroup"})
        linux["maskedPaths"] = [f"/proc/{name}" for name in masked]
        linux["readonlyPaths"] = [f"/proc/{name}" for name in _READ_ONLY]
    if users is not None:
        linux["namespaces"].append({"type": "user", "path": str(users)})
        if runtime.kind is Kind.RUNC and ids is not None:  # it wants to be told what it could read there
            mapping = {"containerID": 0, "hostID": ids.first, "size": RANGE}
            linux["uidMappings"] = linux["gidMappings"] = [mapping]
    if group is not None:
        linux["cgroupsPath"] = group
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "args": list(agent), "cwd": "/",
            "env": [f"{name}={value}" for name, value in environment.items()],
            "capabilities": {key: list(capabilities) for key in ("bounding", "effective", "permitted")},
            "rlimits": [] if runtime.shares_kernel else _rlimits(order), "noNewPrivileges": True, "oomScoreAdj": 500,
        },
        "root": {"path": str(prepared.root), "readonly": False},
        "hostname": "sandbox",
        "mounts": _mounts(runtime, order, prepared),
        "linux": linux,
    }  # fmt: skip


def command(runtime: Runtime, folder: Path, joins: int) -> list[str]:
    """Return the command line that starts the sandbox of a bundle; `joins` descriptors from 3 on go inside."""
    options = {
        Kind.CRUN: ["--cgroup-manager=disabled"],
        Kind.RUNC: [],
        # The filter holds for what the sandbox asks of gVisor; what gVisor asks of the host, its own filter bounds.
        Kind.RUNSC: ["--network=none", "--ignore-cgroups", "--oci-seccomp", "--file-access=exclusive"],
    }[runtime.kind]
    carried = [f"--preserve-fds={joins}"] if joins else []
    return [
        # Its own /proc as well: the runtime looks up the processes that it made by their ids there.
        "unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc",
        runtime.path, "--root", str(folder / "state"), *options, "run", "--bundle", str(folder), *carried,
        # Of the host's own: runsc has a socket of this name that is nobody else's.
        f"prime-{os.urandom(8).hex()}",
    ]  # fmt: skip


def prepare(
    runtime: Runtime,
    order: Create,
    ids: IdRange | None,
    prepared: Prepared,
    *,
    agent: Sequence[str],
    environment: dict[str, str],
    capabilities: Sequence[str],
    masked: Sequence[str],
    userns: int | None,
    joins: int,
) -> list[str]:
    """Write the bundle beside the root, put away what the runtime is not to see, and return the command that starts it.

    `masked` are names in /proc, `userns` is a descriptor of the sandbox's user namespace, if it has one.
    """
    folder = prepared.root.parent / "bundle"
    folder.mkdir(mode=0o700)
    folder.joinpath("state").mkdir()
    group = _hide_groups(runtime)
    # A runtime puts the null device of where it runs itself on what is masked; the host's would be shared.
    system_calls.attach(str(prepared.devices / "null"), "/dev/null", readonly=False, devices=True)
    users = None
    if userns is not None:
        users = folder / "users"
        users.touch()
        system_calls.bind(f"/proc/self/fd/{userns}", str(users))
    described = configuration(
        runtime, order, ids, prepared, agent=agent, environment=environment, capabilities=capabilities, masked=masked,
        users=users, group=group,
    )  # fmt: skip
    folder.joinpath("config.json").write_text(json.dumps(described))
    return command(runtime, folder, joins)


def refuse_other_streams(descriptors: Sequence[int]) -> None:
    """Make sure that the streams of a runtime are pipes.

    Raises:
        OSError: one is something else.
    """
    for descriptor in descriptors:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(0, f"descriptor {descriptor} of a container runtime is no pipe")


def _hide_groups(runtime: Runtime) -> str | None:
    """Unmount, for this process, the control groups that the runtime shall not see; return the one that it is to use.

    crun refuses hosts with groups of both versions. runc does not start without a group for devices where they are of
    version 1, so it gets one below the sandbox's own.
    """
    there = mounted(Path("/proc/self/mountinfo").read_text())
    unified_only = not any(mount.kind == "cgroup" for mount in there)
    if unified_only:
        return _below_own_group("") if runtime.kind is Kind.RUNC else None
    for mount in there:
        if not (runtime.kind is Kind.RUNC and "devices" in mount.options) and not _is_needed(runtime, mount):
            _libc.umount2(os.fsencode(mount.path), _MNT_DETACH)
    return _below_own_group("devices") if runtime.kind is Kind.RUNC else None


def _is_needed(runtime: Runtime, mount: Mounted) -> bool:
    return runtime.kind is Kind.CRUN and mount.kind == "cgroup"


def _below_own_group(controller: str) -> str | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return f"{path.rstrip('/')}/{CONTAINER}"
    return None


def _mounts(runtime: Runtime, order: Create, prepared: Prepared) -> list[dict[str, Any]]:
    def mount(destination: str, kind: str, *options: str, source: str | None = None) -> dict[str, Any]:
        return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}

    mounts = [mount("/proc", "proc", "nosuid", "noexec", "nodev")]
    if runtime.shares_kernel:
        # What is mounted below comes along with runc only.
        binds = ("", "/pts", "/shm") if runtime.kind is Kind.CRUN else ("",)
        return mounts + [mount(f"/dev{name}", "bind", "rbind", source=f"{prepared.devices}{name}") for name in binds]
    # gVisor has devices of its own. Over an empty /tmp it lays an unlimited file system; the sandbox's is on its disk.
    shared = ("nosuid", "nodev", "mode=1777", f"size={order.shared_memory_bytes}")
    mounts.append(mount("/dev/shm", "tmpfs", *shared))  # noqa: S108
    return [*mounts, mount("/tmp", "bind", "rbind", "rw", source=f"{prepared.root}/tmp")]  # noqa: S108


def _rlimits(order: Create) -> list[dict[str, Any]]:
    """Return the limits of each process for gVisor's own kernel; others inherit those of the process that we are."""
    values = {"CORE": 0, "NOFILE": order.limits.open_files, "FSIZE": order.limits.file_bytes}
    return [{"type": f"RLIMIT_{name}", "hard": value, "soft": value} for name, value in values.items()]
