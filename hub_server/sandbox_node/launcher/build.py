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
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hub_server.sandbox_node.launcher import oci, runtime, system_calls
from hub_server.sandbox_node.launcher.cgroups import Groups
from hub_server.sandbox_node.launcher.orders import Create
from hub_server.sandbox_node.launcher.uids import IdRange
from hub_server.sandbox_node.specification import Limits

FAILED_STATUS = 70

# The descriptors of bubblewrap and, up to the jobs' groups, of the agent. 0 and 1 are the link to the node, 2 takes
# complaints.
_FIRST_GROUP_FD, _USERNS_FD, _SECCOMP_FD, _ABOVE_ALL = 3, 8, 9, 10

# What root may do inside, over the files, ids and processes of its own namespaces only.
_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
    "CAP_NET_BIND_SERVICE",
)  # fmt: skip

_HOST_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
# What of /proc says more about the machine than about the sandbox: locks tells the open-file locks of everybody, which
# is a channel between whoever wants one, and interrupts when keys are struck and packets come.
_MASKED = ("locks", "interrupts", "keys", "key-users", "timer_list", "kcore", "kallsyms", "sysrq-trigger")
_DEVICES_AT = "devices"  # on the stage
_HOSTS = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n"
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


@dataclass(frozen=True)
class Place:
    """What the launcher prepared for all sandboxes."""

    stage: Path  # an empty folder to mount on
    host_root: Path
    host_bound: list[str]
    runtime: str
    agent: list[str]
    bwrap: str
    seccomp: bytes
    groups: Groups | None
    maps_files: bool  # whether files can be shown as owned by the sandbox's root
    oci: oci.Runtime | None = None  # in bubblewrap's place


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
    userns = system_calls.user_namespace(owner, owner, ids.mapping, ids.mapping) if ids is not None else None
    system_calls.unshare(system_calls.CLONE_NEWNS)
    root = _root_filesystem(order, owner, userns if place.maps_files else None, place)
    seccomp = _as_descriptor(place.seccomp)
    _set_limits(order.limits)
    if ids is not None:
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    system_calls.die_with_parent(launcher)  # the kernel forgets it when ids change
    _arrange_descriptors([ends[0], ends[1]], jobs, userns, seccomp)
    agent = _agent(place, len(jobs))
    command = arguments(root, place.stage / _DEVICES_AT, order.shared_memory_bytes, userns=userns is not None)
    os.execve(place.bwrap, [place.bwrap, *command, "--", *agent], {})  # noqa: S606 - there is no shell between


def _become_runtime(
    runs: oci.Runtime, order: Create, ids: IdRange | None, place: Place, ends: list[int], jobs: list[int]
) -> NoReturn:
    oci.refuse_other_streams(ends)
    ids = ids if runs.shares_kernel else None  # gVisor maps no ids; its processes on the host are nobody's
    owner = ids.first if ids is not None else 0
    idmap = system_calls.user_namespace(owner, owner, ids.mapping, ids.mapping) if ids is not None else None
    system_calls.unshare(system_calls.CLONE_NEWNS)
    root = _root_filesystem(order, owner, idmap, place)
    if not runs.shares_kernel:
        jobs = []  # its processes are none of the host's
    command = oci.prepare(
        runs, order, ids, root, agent=_agent(place, len(jobs)), environment=_ENVIRONMENT, capabilities=_CAPABILITIES,
        joins=len(jobs),
    )  # fmt: skip
    _arrange_descriptors([ends[0], ends[1]], jobs, None, None)
    os.execvpe(command[0], command, _HOST_ENVIRONMENT)  # noqa: S606 - there is no shell between


def _agent(place: Place, joins: int) -> list[str]:
    groups = ",".join(str(_FIRST_GROUP_FD + number) for number in range(joins))
    return [*place.agent, *([groups] if joins else [])]


def arguments(root: Path, devices: Path, shared_memory_bytes: int, *, userns: bool) -> list[str]:
    """Return the arguments of bubblewrap, up to the command inside."""
    users = ["--userns", str(_USERNS_FD)] if userns else ["--unshare-user", "--uid", "0", "--gid", "0"]
    return [
        *users, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
        "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox",
        "--cap-drop", "ALL", *[word for name in _CAPABILITIES for word in ("--cap-add", name)],
        "--clearenv", *[word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)],
        "--bind", str(root), "/", "--proc", "/proc",
        *[word for name in _MASKED if os.path.exists(f"/proc/{name}")
          for word in ("--dev-bind", f"{devices}/null", f"/proc/{name}")],
        # The file system that bubblewrap puts on /dev has no limit, so nobody may write to it.
        "--dev", "/dev", *[word for name in _DEVICES for word in ("--dev-bind", f"{devices}/{name}", f"/dev/{name}")],
        "--perms", "1777", "--size", str(shared_memory_bytes), "--tmpfs", "/dev/shm",  # noqa: S108
        "--remount-ro", "/dev",
        "--chdir", "/", "--seccomp", str(_SECCOMP_FD),
    ]  # fmt: skip


def _root_filesystem(order: Create, owner: int, idmap: int | None, place: Place) -> Path:
    """Lay a writable layer of limited size over the image, and return where it is."""
    stage = place.stage
    size = f"size={order.limits.disk_bytes},nr_inodes={order.limits.inodes},mode=0755"
    system_calls.mount("tmpfs", str(stage), "tmpfs", system_calls.MS_NOSUID | system_calls.MS_NODEV, size)
    lower, upper, work, root = (stage / name for name in ("lower", "upper", "work", "root"))
    for folder in (lower, upper, work, root):
        folder.mkdir()
    image = Path(order.root) if order.root is not None else place.host_root
    system_calls.attach(str(image), str(lower), readonly=True, idmap_fd=idmap)
    _own_folders(upper, owner)
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    system_calls.mount("overlay", str(root), "overlay", system_calls.MS_NOSUID | system_calls.MS_NODEV, layers)
    if order.root is None:
        for source in place.host_bound:
            # Not mapped: as its owner, the sandbox's root would read what the host keeps from others.
            _share(source, f"{root}{source}", stage)
    _share(place.runtime, f"{root}{runtime.INSIDE}", stage)
    _make_devices(stage / _DEVICES_AT)
    return root


def _share(source: str, target: str, stage: Path) -> None:
    """Show a folder of the host read-only, through files of the sandbox's own.

    Bound as it is, the files would be the host's: whoever locks one, or watches one being opened, reaches the host and
    all sandboxes that way. An overlay of one folder and an empty one has files of its own, with the same content.
    """
    empty, bound = stage / "empty", stage / f"shared-{Path(source).name}"
    empty.mkdir(exist_ok=True)
    bound.mkdir()
    system_calls.attach(source, str(bound), readonly=True)
    flags = system_calls.MS_RDONLY | system_calls.MS_NOSUID | system_calls.MS_NODEV
    system_calls.mount("overlay", target, "overlay", flags, f"lowerdir={bound}:{empty}")


def _make_devices(folder: Path) -> None:
    """Make the devices of the sandbox itself; of the host's own, locks and watches would be shared as of its files."""
    folder.mkdir()
    system_calls.mount("tmpfs", str(folder), "tmpfs", system_calls.MS_NOSUID, "size=64k,nr_inodes=16,mode=0755")
    for name, (major, minor) in _DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(folder / name, 0o666)  # noqa: S103 - as everywhere


def _own_folders(upper: Path, owner: int) -> None:
    """Put into the layer what every sandbox has, so that no link of the image stands where something is mounted."""
    for name, mode in (("", 0o755), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("etc", 0o755), ("run", 0o755),
                       ("run/prime", 0o755), ("tmp", 0o1777)):  # fmt: skip
        folder = upper / name
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
        os.chown(folder, owner, owner)
    for name, text in (("etc/hosts", _HOSTS), ("etc/hostname", "sandbox\n"), ("etc/resolv.conf", "")):
        file = upper / name
        file.write_text(text)
        os.chown(file, owner, owner)


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
    away = {number: _duplicate_above(fd) for number, fd in wanted.items()}
    for number, fd in away.items():
        os.dup2(fd, number, inheritable=True)
    for number in range(_ABOVE_ALL):
        if number not in wanted and number != 2:
            with contextlib.suppress(OSError):
                os.close(number)
    os.closerange(_ABOVE_ALL, 65536)


def _duplicate_above(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def _set_limits(limits: Limits) -> None:
    """Set what holds for each process; it is the second line behind the groups, and the only one without them."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NPROC: limits.processes + 32,  # of the whole user id, which is this sandbox's alone
        resource.RLIMIT_MEMLOCK: 64 * 1024,
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_SIGPENDING: 4 * limits.processes + 64,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
