"""What a process does between its fork and its program: it is set up as a command, and becomes what was asked for."""

from __future__ import annotations

import marshal
import os

from . import kernel
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

# What the agent does not want to die of, and no command may inherit; the last two are ignored by Python itself.
IGNORED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PID_LENGTH = 4
NO_CLONE = 3  # status of a forker whose forks would be its own children, not the agent's
_TOLD_FD, _LENGTH = 3, 4


def set_up(streams: tuple[int, int, int], cgroup_fds: Iterable[int], keep: int | None) -> None:
    """Set up what all commands have, in a process that was just forked; `keep` becomes its 3.

    Raises:
        OSError: something of it is not possible.
    """
    signal.set_wakeup_fd(-1)
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for fd in cgroup_fds:
        os.write(fd, b"0")
    if keep is not None:
        os.dup2(keep, 3)
    # All other descriptors close when the command takes over; signals with a handler fall back then too.
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    kernel.keep_orphans()
    kernel.keep_children_below()
    if os.getppid() != 1:  # where no namespace ends with the agent, its commands do at least
        kernel.end_with_parent()


def become(request: dict[str, Any], *, is_helper: bool = False) -> NoReturn:
    """Become the program of a request; a helper of the agent's is one that no command may read."""
    try:
        try:
            if request.get("user") is not None:
                _become_user(request["user"])
            os.chdir(request.get("cwd") or "/")
        except OSError as error:
            _complain(f"{error.filename or request.get('user')}: {error.strerror}")
        if request.get("memory_bytes") is not None:
            kernel.limit_memory(request["memory_bytes"])
        if is_helper:
            kernel.stay_unreadable()
        argv = request["argv"]
        try:
            _execute(argv, request["env"])
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            _complain(f"{argv[0]}: {error.strerror}", code)
    finally:
        os._exit(NOT_EXECUTABLE)


def wait_and_become() -> NoReturn:
    """Wait, as a spare, for a packed request on 3, and become its program; first of all tell the process id on 1.

    It holds nothing else of the agent's meanwhile, or no pipe of it would ever end.
    """
    try:
        os.closerange(_TOLD_FD + 1, 65536)
        os.set_inheritable(_TOLD_FD, False)
        _rehearse()
        os.write(1, os.getpid().to_bytes(PID_LENGTH, "big"))
        head = os.read(_TOLD_FD, _LENGTH)
        if len(head) < _LENGTH:
            os._exit(0)
        size = int.from_bytes(head, "big")
        told = b""
        while len(told) < size:
            part = os.read(_TOLD_FD, size - len(told))
            if not part:
                os._exit(0)
            told += part
        become(marshal.loads(told))  # noqa: S302  of the agent
    finally:
        os._exit(NOT_EXECUTABLE)


def packed(request: dict[str, Any]) -> bytes:
    """Return a request as a spare reads it."""
    told = marshal.dumps(request)
    return len(told).to_bytes(_LENGTH, "big") + told


def _rehearse() -> None:
    """Go through what a command needs once, in vain: the first time each page that is written to has to be copied."""
    request = marshal.loads(packed({"argv": ["/"], "env": {"PATH": os.defpath}})[_LENGTH:])  # noqa: S302
    os.chdir("/")
    try:
        _execute(request["argv"], request["env"])
    except OSError:
        return


def _become_user(user: str) -> None:
    """Change to another user of the image, where that is mapped.

    Raises:
        OSError: it is not, or there is none of this name.
    """
    import pwd  # only here: few commands ask for a user

    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        if not user.isdigit():
            raise OSError(2, "no such user", user) from None
        uid = gid = int(user)
    if uid != os.getuid():
        os.setgroups([gid])
        os.setgid(gid)
        os.setuid(uid)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    """Become the program, which is looked for where the command's PATH says.

    os.execvpe does the same, but imports modules that the runtime of the agent is without.

    Raises:
        OSError: there is none, or none that can be run.
    """
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606  there is no shell between
    problem = OSError(2, os.strerror(2))
    for folder in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{argv[0]}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = error
    raise problem


def _complain(text: str, code: int = NOT_EXECUTABLE) -> None:
    os.write(2, f"sandbox: {text}\n".encode())
    os._exit(code)
