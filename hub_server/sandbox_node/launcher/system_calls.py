"""System calls of Linux that Python has no function for: namespaces, mounts and controls of a process.

Each raises OSError with the call's name, so that a failure says where it happened.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000

_CLONE_VM = 0x100
_STACK_BYTES = 32 * 1024
_SLEEPS_S = 10
_sleeper_stacks: list[ctypes.Array[ctypes.c_char]] = []

_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MS_RDONLY = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8

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


def overlay(target: str, layers: list[str], options: str = "") -> None:
    """Show `layers` at `target` as one, the first on top; without options, which name where to write, nobody can."""
    # Colons and commas separate; a path may have them too.
    lower = ":".join(re.sub(r"([\\:,])", r"\\\1", layer) for layer in layers)
    flags = MS_NOSUID | MS_NODEV | (0 if options else _MS_RDONLY)
    mount("overlay", target, "overlay", flags, f"lowerdir={lower}{options}")


def bind(source: str, target: str) -> None:
    """Bind `source`, which may be no folder or file, such as a namespace, on `target` as it is."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(_MS_BIND), None)
    _checked(result, f"bind {source}")


def make_readonly(target: str) -> None:
    """Let nobody write through the mount at `target`."""
    _set_attributes(_AT_FDCWD, target, 0, _MountAttributes(set=_MOUNT_ATTR_RDONLY))


def attach(
    source: str,
    target: str,
    *,
    readonly: bool = True,
    devices: bool = False,
    idmap_fd: int | None = None,
) -> None:
    """Bind `source`, with what is mounted below it, on `target`; without set-uid files, and devices unless asked for.

    With `idmap_fd`, a user namespace, the owners of files are shown as that namespace maps them; then nothing of what
    is mounted below comes along.
    """
    deep = 0 if idmap_fd is not None else _AT_RECURSIVE
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | deep
    tree = _checked(_libc.syscall(_NR_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags), f"open_tree {source}")
    try:
        wanted = _MountAttributes(set=_MOUNT_ATTR_NOSUID)
        wanted.set |= 0 if devices else _MOUNT_ATTR_NODEV
        wanted.set |= _MOUNT_ATTR_RDONLY if readonly else 0
        if idmap_fd is not None:
            wanted.set |= _MOUNT_ATTR_IDMAP
            wanted.userns_fd = idmap_fd
        _set_attributes(tree, "", _AT_EMPTY_PATH | deep, wanted)
        result = _libc.syscall(_NR_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
        _checked(result, f"move_mount {target}")
    finally:
        os.close(tree)


def _set_attributes(folder: int, path: str, flags: int, wanted: _MountAttributes) -> None:
    size = ctypes.sizeof(wanted)
    result = _libc.syscall(_NR_MOUNT_SETATTR, folder, os.fsencode(path), flags, ctypes.byref(wanted), size)
    _checked(result, f"mount_setattr {path}")


def user_namespace(owner: int, mapping: str) -> int:
    """Make a user namespace that belongs to the user and the group `owner`, and return a descriptor of it.

    The mapping of users and groups is as in /proc/PID/uid_map; the caller must be root in its own namespace.
    """
    os.setegid(owner)
    os.seteuid(owner)
    try:
        holder = _sleeper(CLONE_NEWUSER)
    finally:
        os.seteuid(0)
        os.setegid(0)
    try:
        process = f"/proc/{holder}"
        for name in ("uid_map", "gid_map"):
            with open(f"{process}/{name}", "w") as file:
                file.write(mapping)
        return os.open(f"{process}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)


def _sleeper(namespaces: int) -> int:
    """Start a process that does nothing but hold new namespaces for a moment, and return its id.

    It runs a function of the C library in our memory, on a stack of its own: a fork of the interpreter would cost a
    hundred times as much. If nobody ends it, it wakes up and ends.
    """
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = (ctypes.addressof(stack) + _STACK_BYTES) & ~0xF
    _sleeper_stacks.append(stack)  # in use until the process has ended, which is when this one has become another
    sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
    flags = namespaces | _CLONE_VM | signal.SIGCHLD
    return _checked(_libc.clone(sleep, ctypes.c_void_p(top), flags, ctypes.c_void_p(_SLEEPS_S)), "clone")


def become_root_of_ourselves() -> None:
    """Enter a user namespace in which this process, of whatever user, is root: it may mount there, and nothing else."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")  # or the group could not be mapped
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
