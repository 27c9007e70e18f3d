"""The few calls of the kernel that Python has no name for, and the tree of processes."""

from __future__ import annotations

import ctypes
import os
import struct

from .signals import signal

_SET_DUMPABLE, _SET_CHILD_SUBREAPER, _SET_PARENT_DEATH_SIGNAL = 4, 36, 1
_SET_SECCOMP, _SECCOMP_FILTER = 22, 2
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the system call, by machine
_libc = ctypes.CDLL(None, use_errno=True)


def be_unreadable() -> None:
    """Let no process of the same user trace this one or read its memory, descriptors and environment."""
    _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def stay_unreadable() -> None:
    """Let what this process executes next be unreadable from its first instruction on.

    Exec makes a process readable again, and whoever opens its memory before it says otherwise has it open for good. But
    not one whose real and effective groups differ, as of a program that gives its own rights; so they do, until the
    program makes them equal. Where only one group is mapped, there is a moment that is not protected.
    """
    try:
        os.setresgid(1, 0, 0)
    except OSError:
        pass


def keep_orphans() -> None:
    """Become the parent of what loses its own below this process, so that the tree stays whole; kept by exec."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_children_below() -> None:
    """Refuse CLONE_PARENT from here on, by which a command could make a process that is not below it; kept by exec.

    Where that is not possible, as for users who may still gain rights, it is left.
    """
    load, jump_equal, jump_set, give = 0x20, 0x15, 0x45, 0x06
    allow, refuse_eperm = 0x7FFF0000, 0x00050001
    filter_ = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (load, 0, 0, 0),  # the number of the call
            (jump_equal, 0, 3, CLONE.get(os.uname().machine, 0xFFFFFFFF)),
            (load, 0, 0, 16),  # its flags
            (jump_set, 0, 1, CLONE_PARENT),
            (give, 0, 0, refuse_eperm),
            (give, 0, 0, allow),
        )
    )
    content = ctypes.create_string_buffer(filter_, len(filter_))
    program = struct.pack("HxxxxxxQ", len(filter_) // 8, ctypes.addressof(content))
    _libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.c_char_p(program), 0, 0)


def end_with_parent() -> None:
    """Be killed when the parent ends."""
    _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def limit_memory(size: int) -> None:
    """Let this process and each below it have at most `size` bytes of private memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_STACK, (min(size, 64 * 1024**2), size))


def below(root: int) -> list[int]:
    """Return all processes below one that still run; itself left out."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue
        # The name in parentheses may hold anything, also parentheses.
        state, parent = text[text.rindex(b")") + 2 :].split(maxsplit=2)[:2]
        children.setdefault(int(parent), []).append(int(name))
        if state in (b"Z", b"X"):
            ended.add(int(name))
    found, waiting = [], [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            if child not in ended:
                found.append(child)
    return found


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, or to the group -pid; gone is as good as killed."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(leader: int, number: int) -> None:
    """Send a signal to a group, or to its leader alone while that has not made the group yet."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        kill(leader, number)
    except PermissionError:
        pass


def kill_tree(root: int, passes: int = 30) -> bool:
    """Kill a process that keeps its orphans, with all below it; False where they multiplied faster than they died.

    The root is stopped meanwhile, not killed: while it lives, what loses its parent stays below it.
    """
    kill(root, signal.SIGSTOP)
    kill(-root, signal.SIGSTOP)
    for _ in range(passes):
        found = below(root)
        if not found:
            break
        for pid in found:
            kill(pid, signal.SIGKILL)
    kill(-root, signal.SIGKILL)
    kill(root, signal.SIGKILL)
    return not found


def kill_everything() -> None:
    """Kill every process but this one; the kernel does it in one step, so nothing can multiply away from it.

    For process 1 of its own namespace only: anywhere else it would be the machine's processes.
    """
    assert os.getpid() == 1
    kill(-1, signal.SIGKILL)
