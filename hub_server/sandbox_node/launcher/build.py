"""How one sandbox is made, in a process forked for it: groups, ids, root file system, limits, and then bubblewrap.

All mounts are made in a mount namespace of this process, which bubblewrap keeps while the sandbox lives. So there is
nothing to unmount afterwards, and nothing that a crash can leave behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hub_server.sandbox_node.launcher import oci, root_filesystem, system_calls
from hub_server.sandbox_node.launcher.cgroups import Groups
from hub_server.sandbox_node.launcher.orders import Create
from hub_server.sandbox_node.launcher.uids import IdRange
from hub_server.sandbox_node.specification import Limits

FAILED_STATUS = 70

# The descriptors of bubblewrap and, up to the jobs' groups, of the agent. 0 and 1 are the link to the node, 2 takes
# complaints.
_FIRST_GROUP_FD, _USERNS_FD, _SECCOMP_FD, _ABOVE_ALL = 3, 8, 9, 10

# What root may do inside, over the files, ids and processes of its own namespaces only.
CAPABILITIES = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_KILL": 5, "CAP_SETGID": 6,
    "CAP_SETUID": 7, "CAP_NET_BIND_SERVICE": 10,
}  # fmt: skip
# The namespace of a launcher that is not root has one user in it, so there is nobody to become.
_ONE_USER = "0 0 1"
# One user above all that hosts and sandboxes give out, for a namespace must have somebody.
_NOBODY_OF_THE_HOST = "2147483646 2147483646 1"

_HOST_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
# What of /proc says more of the machine than of the sandbox, as far as everybody may read it: locks tells the open-file
# locks of everybody, which is a channel between whoever wants one, and interrupts when keys are struck.
_MASKED_FILES = ("locks", "interrupts", "keys", "key-users", "sched_debug", "latency_stats", "timer_stats")
_MASKED_FOLDERS = ("scsi", "asound")


@dataclass(frozen=True)
class Place:
    """What the launcher prepared for all sandboxes."""

    sources: root_filesystem.Sources
    agent: list[str]
    bwrap: str
    seccomp: bytes
    groups: Groups | None
    masked: list[str]  # names in /proc that this kernel has
    oci: oci.Runtime | None = None  # in bubblewrap's place


def masked_here() -> list[str]:
    """Return which names in /proc are to be masked on this host."""
    names = (*_MASKED_FILES, *_MASKED_FOLDERS)
    return [name for name in names if (path := Path("/proc", name)).exists() and path.stat().st_mode & 0o004]


def become(order: Create, ids: IdRange | None, place: Place, ends: list[int], launcher: int) -> NoReturn:
    """Make the sandbox and become bubblewrap in it. `ends`: what the agent reads, what it writes, complaints."""
    try:
        os.dup2(ends[2], 2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # what is ignored here stays so in all that is started
        system_calls.die_with_parent(launcher)
        _become(order, ids, place, ends, launcher)
    except BaseException as problem:  # noqa: BLE001 - this process must never return into the launcher's loop
        os.write(2, f"{problem}\n".encode()[:4000])
    os._exit(FAILED_STATUS)


def _become(order: Create, ids: IdRange | None, place: Place, ends: list[int], launcher: int) -> NoReturn:
    jobs = place.groups.make(order.sandbox, order.limits) if place.groups is not None else []
    Path("/proc/self/oom_score_adj").write_text("500")  # before any process of the host's own
    os.umask(0o022)
    if place.oci is not None:
        _become_runtime(place.oci, order, ids, place, ends, jobs)
    owner = ids.first if ids is not None else 0
    userns = system_calls.user_namespace(owner, ids.mapping if ids is not None else _ONE_USER)
    system_calls.unshare(system_calls.CLONE_NEWNS)
    prepared = root_filesystem.prepare(order, owner, userns, place.sources)
    _arrange_descriptors([ends[0], ends[1]], jobs, userns, _as_descriptor(place.seccomp))
    _set_limits(order.limits, has_groups=place.groups is not None)
    if ids is not None:
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    system_calls.die_with_parent(launcher)  # the kernel forgets it when ids change
    command = [place.bwrap, *arguments(prepared, place.masked), "--", *_agent(place, len(jobs))]
    os.execve(place.bwrap, command, {})  # noqa: S606 - there is no shell between


def _become_runtime(
    runs: oci.Runtime, order: Create, ids: IdRange | None, place: Place, ends: list[int], jobs: list[int]
) -> NoReturn:
    oci.refuse_other_streams(ends)
    ids = ids if runs.shares_kernel else None  # gVisor maps no ids; its processes on the host are nobody's
    owner = ids.first if ids is not None else 0
    userns = system_calls.user_namespace(owner, ids.mapping) if ids is not None else None
    # gVisor reads files for what runs inside as root of the host.
    nobody = system_calls.user_namespace(0, _NOBODY_OF_THE_HOST) if userns is None else None
    system_calls.unshare(system_calls.CLONE_NEWNS)
    prepared = root_filesystem.prepare(order, owner, userns, place.sources, without_owners=nobody)
    if not runs.shares_kernel:
        jobs = []  # its processes are none of the host's
    command = oci.prepare(
        runs, order, ids, prepared, agent=_agent(place, len(jobs)), environment=_ENVIRONMENT,
        capabilities=list(CAPABILITIES), masked=place.masked, userns=userns, joins=len(jobs),
    )  # fmt: skip
    _arrange_descriptors([ends[0], ends[1]], jobs, None, None)
    if runs.shares_kernel:
        # By itself a runtime would set them on a process of another user, for which root may lack the right.
        _set_limits(order.limits, has_groups=place.groups is not None)
    os.execvpe(command[0], command, _HOST_ENVIRONMENT)  # noqa: S606 - there is no shell between


def _agent(place: Place, joins: int) -> list[str]:
    groups = ",".join(str(_FIRST_GROUP_FD + number) for number in range(joins))
    return [*place.agent, *([groups] if joins else [])]


def arguments(prepared: root_filesystem.Prepared, masked: list[str]) -> list[str]:
    """Return the arguments of bubblewrap, up to the command inside."""
    masks = []
    for name in masked:
        source = prepared.empty_folder if name in _MASKED_FOLDERS else prepared.empty_file
        masks += ["--ro-bind", str(source), f"/proc/{name}"]
    return [
        "--userns", str(_USERNS_FD),
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
        "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox",
        "--cap-drop", "ALL", *[word for name in CAPABILITIES for word in ("--cap-add", name)],
        "--clearenv", *[word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)],
        "--bind", str(prepared.root), "/", "--dev-bind", str(prepared.devices), "/dev", "--proc", "/proc", *masks,
        "--chdir", "/", "--seccomp", str(_SECCOMP_FD),
    ]  # fmt: skip


def _as_descriptor(program: bytes) -> int:
    read_end, write_end = os.pipe()
    os.write(write_end, program)
    os.close(write_end)
    return read_end


def _arrange_descriptors(link: list[int], jobs: list[int], userns: int | None, seccomp: int | None) -> None:
    """Give every descriptor that bubblewrap may have its number, and close all others."""
    wanted = {0: link[0], 1: link[1], **{_FIRST_GROUP_FD + number: fd for number, fd in enumerate(jobs)}}
    if seccomp is not None:
        wanted[_SECCOMP_FD] = seccomp
    if userns is not None:
        # Bubblewrap leaves this one open. It opens nothing that /proc/self/ns/user does not, and the agent closes it.
        wanted[_USERNS_FD] = userns
    # First all out of the way, so that none is overwritten before it was moved.
    away = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for number, fd in wanted.items()}
    for number, fd in away.items():
        os.dup2(fd, number, inheritable=True)
    for number in range(_ABOVE_ALL):
        if number not in wanted and number != 2:
            with contextlib.suppress(OSError):
                os.close(number)
    os.closerange(_ABOVE_ALL, 65536)


def _set_limits(limits: Limits, *, has_groups: bool) -> None:
    """Set what holds for each process; it is the second line behind the groups, and the only one without them."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NPROC: limits.processes + 32,  # of the user in its namespace, which is this sandbox's alone
        resource.RLIMIT_MEMLOCK: 64 * 1024,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_SIGPENDING: 4 * limits.processes + 64,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if not has_groups:
        wanted[resource.RLIMIT_DATA] = limits.memory_bytes
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
