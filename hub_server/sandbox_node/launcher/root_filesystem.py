"""What a sandbox sees as /: a writable layer of limited size over an image, devices of its own, and the agent.

Nothing of it shares a file with another sandbox or with the host in a way that either could notice, not even by locks:
an overlay gives each its own inodes over the same pages.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.launcher import runtime, system_calls
from hub_server.sandbox_node.launcher.orders import Create
from hub_server.sandbox_node.launcher.system_calls import MS_NODEV, MS_NOEXEC, MS_NOSUID

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_MOST_TERMINALS = 64
_TTY_GROUP = 5
_MOST_SHARED_FILES = 4096

# In every image, whatever it has there: no link of the image may stand where something is mounted.
_OWN_FOLDERS = {"": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755, "etc": 0o755, "run": 0o755, "run/prime": 0o755,
                "tmp": 0o1777}  # fmt: skip
# Of the host's image, where it cannot be shown as the sandbox's own.
_HOST_FOLDERS = {"root": 0o700, "home": 0o755, "workspace": 0o755, "app": 0o755, "mnt": 0o755, "opt": 0o755,
                 "srv": 0o755, "var": 0o755, "var/tmp": 0o1777, "var/log": 0o755, "var/lib": 0o755}  # fmt: skip
_OWN_FILES = {
    "etc/hosts": "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
    "etc/hostname": "sandbox\n",
    "etc/resolv.conf": "",
}


@dataclass(frozen=True)
class Sources:
    """What the launcher prepared for the file systems of all sandboxes."""

    stage: Path  # an empty folder to mount on
    host_root: Path
    host_bound: list[str]
    runtime: str
    is_root: bool  # of the host; otherwise of a user namespace
    maps_owners: bool  # whether what is root's in an image can be shown as the sandbox's root's


@dataclass(frozen=True)
class Prepared:
    """Where a sandbox's file systems are, for bubblewrap to bind."""

    root: Path
    devices: Path
    empty_file: Path
    empty_folder: Path


def prepare(
    order: Create, owner: int, userns: int | None, sources: Sources, *, without_owners: int | None = None
) -> Prepared:
    """Mount all, in the mount namespace of the caller; `owner` is the sandbox's root as the caller sees it.

    With `userns`, what belongs to root in the image is shown as that namespace's root's. `without_owners` is a user
    namespace without anybody of the host, for who serves the host's files as the host's root: through it they belong
    to nobody at all, so even that root may read only what everybody may.
    """
    stage = sources.stage
    size = f"size={order.limits.disk_bytes},nr_inodes={order.limits.inodes},mode=0755"
    system_calls.mount("tmpfs", str(stage), "tmpfs", MS_NOSUID | MS_NODEV, size)
    lower, upper, work, root, devices, nothing = (
        stage / name for name in ("lower", "upper", "work", "root", "dev", "nothing")
    )
    for folder in (lower, upper, work, root, devices, nothing):
        folder.mkdir()
    image = order.root if order.root is not None else str(sources.host_root)
    is_mapped = sources.maps_owners and userns is not None and attach_mapped(image, str(lower), userns)
    if not is_mapped:
        system_calls.attach(image, str(lower))
    _own(upper, _OWN_FOLDERS, owner)
    _own_files(upper, owner)
    if order.root is None and not is_mapped:
        _own(upper, _HOST_FOLDERS, owner)
    marks = "" if sources.is_root else ",userxattr"
    system_calls.overlay(str(root), [str(lower)], f",upperdir={upper},workdir={work}{marks}")
    if order.root is None:
        for source in sources.host_bound:
            # Its owners are not mapped: as root of the host, the sandbox's would read what others may not.
            shown = source
            if without_owners is not None:
                shown = f"{stage}/shown-{Path(source).name}"
                Path(shown).mkdir()
                system_calls.attach(source, shown, idmap_fd=without_owners)
            _show(shown, f"{root}{source}", nothing)
    _show(sources.runtime, f"{root}{runtime.INSIDE}", nothing)
    _make_devices(devices, order.shared_memory_bytes, owner, is_root=sources.is_root)
    empty = stage / "empty"
    empty.touch(0o444)
    return Prepared(root, devices, empty, nothing)


def attach_mapped(source: str, target: str, userns: int) -> bool:
    """Bind an image so that what is root's is the sandbox's root's; tell whether its file system can do that."""
    try:
        system_calls.attach(source, target, idmap_fd=userns)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False
    return True


def _show(source: str, target: str, nothing: Path) -> None:
    """Show a folder, read-only. An overlay of one layer is not to be had, so an empty one is below it."""
    try:
        system_calls.overlay(target, [source, str(nothing)])
    except OSError:
        # On a file system that carries no overlay, or the third overlay in a row: the same, but locks are shared.
        system_calls.attach(source, target)


def _own(upper: Path, folders: dict[str, int], owner: int) -> None:
    for name, mode in folders.items():
        folder = upper / name
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
        os.chown(folder, owner, owner)


def _own_files(upper: Path, owner: int) -> None:
    for name, text in _OWN_FILES.items():
        file = upper / name
        file.write_text(text)
        os.chown(file, owner, owner)


def _make_devices(folder: Path, shared_memory_bytes: int, owner: int, *, is_root: bool) -> None:
    """Fill /dev: devices of its own, terminals and shared memory with limits; nothing can be added."""
    system_calls.mount("tmpfs", str(folder), "tmpfs", MS_NOSUID, "size=64k,nr_inodes=64,mode=0755")
    for name, (major, minor) in _DEVICES.items():
        device = folder / name
        if is_root:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            device.chmod(0o666)
        else:
            device.touch()
            system_calls.attach(f"/dev/{name}", str(device), readonly=False, devices=True)
    for name, target in _DEVICE_LINKS.items():
        folder.joinpath(name).symlink_to(target)
    terminals, shared = folder / "pts", folder / "shm"
    terminals.mkdir()
    shared.mkdir()
    group = f",gid={owner + _TTY_GROUP}" if is_root else ""
    options = f"newinstance,ptmxmode=0666,mode=620,max={_MOST_TERMINALS}{group}"
    system_calls.mount("devpts", str(terminals), "devpts", MS_NOSUID | MS_NOEXEC, options)
    inodes = f"size={shared_memory_bytes},nr_inodes={_MOST_SHARED_FILES},mode=1777"
    system_calls.mount("tmpfs", str(shared), "tmpfs", MS_NOSUID | MS_NODEV, inodes)
    system_calls.make_readonly(str(folder))
