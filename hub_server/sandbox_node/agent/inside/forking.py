"""A process that forks for the agent, from among the commands, so that they begin in their cgroup.

To fork copies page tables, and afterwards each page that is written to; done here, the agent's own memory stays whole.
And a process that enters a cgroup of version 1 may wait ten milliseconds for the kernel, which the forker did once.
What it forks are children of the agent (CLONE_PARENT): it hears of their ends as of those of what it forked itself.
"""

from __future__ import annotations

import _socket
import ctypes
import gc
import os
import struct

from . import kernel
from .becoming import IGNORED, NO_CLONE, NOT_EXECUTABLE, set_up, wait_and_become
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

_libc = ctypes.PyDLL(None)  # which keeps the interpreter's lock, so that both processes come back with it
_libc.syscall.argtypes = [ctypes.c_long] * 6
_libc.syscall.restype = ctypes.c_long
_LINK_FD = 3
_DESCRIPTORS = struct.Struct("4i")  # stdin, stdout, stderr, and what the spare is told by


class ForkerGone(Exception):
    """The forker has ended, or takes no more."""


class Forker:
    """The agent's end of a forker, which ends with the agent."""

    def __init__(self, cgroup_fds: Iterable[int]) -> None:
        """Fork one.

        Raises:
            OSError: there can be no more processes or descriptors.
        """
        self._link, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _serve(theirs.fileno(), cgroup_fds)
        except OSError:
            self._link.close()
            raise
        finally:
            theirs.close()
        self._link.setblocking(False)

    def ask(self, stdin: int, stdout: int, stderr: int, told: int) -> None:
        """Ask for a spare with these streams; see `wait_and_become` for what it does.

        Raises:
            ForkerGone: there will be none.
        """
        descriptors = _DESCRIPTORS.pack(stdin, stdout, stderr, told)
        try:
            self._link.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        except OSError as error:
            raise ForkerGone(error.strerror) from None

    def kill(self) -> None:
        """End it at once; `close` it after that."""
        kernel.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end."""
        self._link.close()


def _serve(link_fd: int, cgroup_fds: Iterable[int]) -> NoReturn:
    """Fork for each request until the agent is gone."""
    try:
        signal.set_wakeup_fd(-1)
        first = 3  # before all else: what commands have open would not end for as long as this process has it too
        for fd in sorted((link_fd, *cgroup_fds)):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, 65536)
        os.setsid()
        for fd in cgroup_fds:
            os.write(fd, b"0")
        if os.getppid() != 1:
            kernel.end_with_parent()
        os.dup2(link_fd, _LINK_FD)
        os.closerange(_LINK_FD + 1, 65536)
        gc.disable()  # a collection writes to all pages
        link = _socket.socket(fileno=_LINK_FD)
        if not _is_for_parent():
            os._exit(NO_CLONE)
        while True:
            _, ancillary, _, _ = link.recvmsg(1, _socket.CMSG_SPACE(_DESCRIPTORS.size))
            if not ancillary:
                os._exit(0)
            descriptors = _DESCRIPTORS.unpack(ancillary[0][2])
            # A signal that comes before the command can die of it waits meanwhile, instead of being ignored as here.
            signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
            if _clone() == 0:
                set_up(descriptors[:3], (), descriptors[3])
                signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
                wait_and_become()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
            for fd in descriptors:
                os.close(fd)  # where nothing was forked the agent finds the other ends closed
    finally:
        os._exit(NOT_EXECUTABLE)


def _clone() -> int:
    """Fork a child of the agent; return 0 in it, and less than that where there is none."""
    pid: int = _libc.syscall(kernel.CLONE.get(os.uname().machine, -1), kernel.CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    return pid


def _is_for_parent() -> bool:
    """Say whether the kernel makes children of the agent here; gVisor makes them this process's own."""
    pid = _clone()
    if pid == 0:
        os._exit(0)
    if pid < 0:
        os._exit(NOT_EXECUTABLE)  # there can be no more processes now; later another forker may find out
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return True
    return False
