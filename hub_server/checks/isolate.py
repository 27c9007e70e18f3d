"""Runs one command shut off from this machine; started by path with the hub's own interpreter.

Reads the description of the confinement as JSON from standard input, so that no value of it shows in a list of
processes. With namespaces (Linux) the command has a file system of its own with only the paths that were named, its own
process table, no capabilities and, where asked, no network. Everything that it started ends with it, and with whoever
started this file. Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36
_NEW_MOUNTS, _NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_NEW_NAMES, _NEW_QUEUES = 0x04000000, 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # the number is the same on all architectures
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 1
NOBODY = 65534
_DEVICES = ("null", "zero", "full", "random", "urandom")
NOT_ISOLATED = 121  # the exit code when the confinement could not be made; the reason goes to standard error

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Confine, run, and end with the command's exit code (128 and the signal's number when one ended it)."""
    spec = json.load(sys.stdin)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(spec["nice"])
    if spec["namespaces"]:
        try:
            _unshare(network=spec["network"])
        except OSError as error:
            _give_up(error)
        supervisor = os.fork()
        if supervisor:
            _end_as(supervisor)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            _make_view(spec)
        except OSError as error:
            _give_up(error)
    elif sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    command = os.fork()
    if command:
        _end_as(command)
    _run(spec)


def _unshare(*, network: bool) -> None:
    """Leave the machine's namespaces; who is not root makes a user namespace for it."""
    user, group = os.getuid(), os.getgid()
    flags = _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NAMES | _NEW_QUEUES
    flags |= 0 if network else _NEW_NETWORK
    flags |= _NEW_USERS if user else 0
    _call(_libc.unshare(flags), "unshare")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if not network:
        _raise_loopback()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", _INTERFACE_UP))


def _make_view(spec: dict[str, Any]) -> None:
    """Make a root with nothing but the named paths, a few devices, /proc and a /tmp of limited size."""
    root = spec["root"]
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    options = f"mode=755,size={spec['scratch_bytes']},nr_inodes=100000"
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path in ("/tmp", "/dev/shm", "/home"):  # noqa: S108  of the new root, which only this command sees
        os.makedirs(root + path, exist_ok=True)
        os.chmod(root + path, 0o1777)  # noqa: S103
    for name in _DEVICES:
        _bind(f"/dev/{name}", root)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    for path in spec["system"]:
        if os.path.islink(path) and os.path.isdir(path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            _bind_read_only(path, root)
    for path in spec["hidden"]:
        if os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
    for path in spec["read_only"]:
        _bind_read_only(path, root)
    for path in spec["writable"]:
        _bind(path, root)
        _protect(root + path, _ATTR_NOSUID | _ATTR_NODEV)
    os.makedirs(f"{root}/proc", exist_ok=True)
    _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    os.chdir(root)
    _call(_libc.pivot_root(b".", b"."), "pivot_root")
    _call(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def _bind(path: str, root: str) -> None:
    """Let a path be in the new root as well; a file that is a link, as resolv.conf often is, with what it leads to."""
    target = root + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _MS_BIND | _MS_REC)


def _bind_read_only(path: str, root: str) -> None:
    _bind(path, root)
    _protect(root + path, _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV)


def _protect(path: str, attributes: int) -> None:
    """Set mount attributes on a bound path and on what is mounted below it."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, wanted, ctypes.c_size_t(len(wanted)))
    _call(done, f"mount_setattr {path}")


def _run(spec: dict[str, Any]) -> None:
    """Give up what is left of rights, set the limits, and become the command."""
    try:
        for name, most in spec["limits"].items():
            number = getattr(resource, name, None)
            if number is not None:
                hard = resource.getrlimit(number)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(number, (most, most))
        if spec["namespaces"] and os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        if sys.platform == "linux":
            _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(spec["cwd"])
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606
    except OSError as error:
        _give_up(error)


def _end_as(child: int) -> None:
    """Wait for a child, for whatever else was left to this process meanwhile, and end as the child ended."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    parts = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    _call(_libc.mount(parts[0], parts[1], parts[2], ctypes.c_ulong(flags), parts[3]), f"mount {target}")


def _call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _give_up(error: OSError) -> None:
    os.write(2, f"cannot isolate: {error}\n".encode())
    os._exit(NOT_ISOLATED)


if __name__ == "__main__":
    main()
