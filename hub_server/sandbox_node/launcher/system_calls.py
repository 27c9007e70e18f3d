"""System calls of Linux that Python has no function for: namespaces, mounts and controls of a process.

Each raises OSError with the call's name, so that a failure says where it happened.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000

_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4

_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_EMPTY_PATH, _MOVE_MOUNT_F_EMPTY_PATH = 1, 0x8000, 0x1000, 4
_AT_FDCWD = -100
# The same numbers on every architecture: they were added after the tables had been united.
_NR_OPEN_TREE, _NR_MOVE_MOUNT, _NR_MOUNT_SETATTR = 428, 429, 442

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` names for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def die_with_parent(parent: int) -> None:
    """Be killed when the parent process `parent` ends, or now, when it already has."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be waited for."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl PR_SET_CHILD_SUBREAPER")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system of the kind `kind`."""
    result = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options)
    )
    _checked(result, f"mount {kind} on {target}")


def keep_mounts_to_ourselves() -> None:
    """Move to a mount namespace of our own from which nothing spreads to the host."""
    unshare(CLONE_NEWNS)
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount private /")


def attach(source: str, target: str, *, readonly: bool, idmap_fd: int | None = None, recursive: bool = False) -> None:
    """Bind `source` on `target` without set-uid files and devices.

    With `idmap_fd`, a user namespace, the owners of files are shown as that namespace maps them.
    """
    deep = _AT_RECURSIVE if recursive else 0
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | deep
    tree = _checked(_libc.syscall(_NR_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags), f"open_tree {source}")
    try:
        wanted = _MountAttributes(set=_MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV)
        if readonly:
            wanted.set |= _MOUNT_ATTR_RDONLY
        if idmap_fd is not None:
            wanted.set |= _MOUNT_ATTR_IDMAP
            wanted.userns_fd = idmap_fd
        result = _libc.syscall(
            _NR_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | deep, ctypes.byref(wanted), ctypes.sizeof(wanted)
        )
        _checked(result, f"mount_setattr {source}")
        result = _libc.syscall(_NR_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
        _checked(result, f"move_mount {target}")
    finally:
        os.close(tree)


def user_namespace(uid: int, gid: int, uid_map: str, gid_map: str) -> int:
    """Make a user namespace that belongs to `uid`, and return a descriptor of it.

    The maps are as in /proc/PID/uid_map; the caller must be root.
    """
    made_read, made_write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            unshare(CLONE_NEWUSER)
            die_with_parent(parent)
            os.write(made_write, b"1")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(made_write)
        if not os.read(made_read, 1):
            raise OSError(1, "unshare: no user namespace could be made")
        process = Path("/proc", str(pid))
        process.joinpath("uid_map").write_text(uid_map)
        process.joinpath("gid_map").write_text(gid_map)
        return os.open(process / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(made_read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
