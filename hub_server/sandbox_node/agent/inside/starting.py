"""How commands are started: forked, set up and replaced by their program.

A fork of an interpreter is most of what it takes, so one is made ahead, which waits for what it is to become.
"""

from __future__ import annotations

import marshal
import os

from . import kernel
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from typing import Any, NoReturn

# What the agent does not want to die of, and no command may inherit; the last two are ignored by Python itself.
IGNORED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE = 127, 126


_TOLD_FD, _LENGTH = 3, 4
_MOST_TOLD = 60_000  # what a pipe takes at once, whoever reads


class Refused(Exception):
    """A request cannot be met; `kind` is for the node, the text for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Pipes:
    """The three pipes of a command. Its own ends are inherited by it alone."""

    def __init__(self, *, with_input: bool) -> None:
        self.input_fd: int | None = None
        if with_input:
            self.stdin, self.input_fd = os.pipe()
            os.set_blocking(self.input_fd, False)
        else:
            self.stdin = os.open(os.devnull, os.O_RDONLY)
        self.out_fd, self.stdout = os.pipe()
        self.error_fd, self.stderr = os.pipe()
        os.set_blocking(self.out_fd, False)
        os.set_blocking(self.error_fd, False)

    def close_inner(self) -> None:
        """Close the command's ends, once it has them."""
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)

    def close_outer(self) -> None:
        """Close our ends, of a command that did not come to be."""
        for fd in (self.input_fd, self.out_fd, self.error_fd):
            if fd is not None:
                os.close(fd)


class Spare:
    """A process that is set up as a command is and waits for its program; it ends with the agent."""

    def __init__(self, pid: int, pipes: Pipes, control_fd: int) -> None:
        self.pid, self.pipes, self._control_fd = pid, pipes, control_fd

    def take(self, told: bytes, *, with_input: bool) -> bool:
        """Let it become what it is told, a packed request; False where it is gone, and nothing was started."""
        try:
            os.write(self._control_fd, told)
        except OSError:
            self.discard()
            return False
        os.close(self._control_fd)
        if not with_input:
            assert self.pipes.input_fd is not None
            os.close(self.pipes.input_fd)  # it reads an empty input
            self.pipes.input_fd = None
        return True

    def discard(self) -> None:
        """Let it end."""
        os.close(self._control_fd)
        self.pipes.close_outer()


class Starter:
    """Starts commands as children of the agent."""

    def __init__(self, jobs_cgroup_fds: list[int]) -> None:
        self._cgroup_fds = jobs_cgroup_fds
        self._spare: Spare | None = None

    def start(self, request: dict[str, Any]) -> tuple[int, Pipes]:
        """Return the process id and the pipes of a new command.

        Raises:
            Refused: there can be no more processes or descriptors.
        """
        spare, with_input = self._spare, bool(request.get("stdin"))
        if spare is not None:
            told = _packed(request)
            if len(told) <= _MOST_TOLD:
                self._spare = None
                if spare.take(told, with_input=with_input):
                    return spare.pid, spare.pipes
        try:
            pipes = Pipes(with_input=with_input)
        except OSError as error:
            raise Refused("no_process", f"no command can be started: {error.strerror}") from None
        try:
            pid = self._fork(pipes)
            if pid == 0:
                _become(request)
        except Refused:
            pipes.close_outer()
            raise
        finally:
            pipes.close_inner()
        return pid, pipes

    def start_helper(self, request: dict[str, Any], pipes: Pipes, keep: int) -> int:
        """Return the process id of a helper of the agent, which no command may read; it has `keep` as its 3.

        Raises:
            Refused: there can be no more processes.
        """
        pid = self._fork(pipes, keep)
        if pid == 0:
            _become(request, is_helper=True)
        return pid

    def prepare(self) -> None:
        """Have a spare for the next command. Where there can be none, that will be forked itself, or refused."""
        if self._spare is not None:
            return
        try:
            pipes = Pipes(with_input=True)
            told_fd, control_fd = os.pipe()
        except OSError:
            return
        try:
            pid = self._fork(pipes, told_fd)
            if pid == 0:
                _wait_and_become()
            self._spare = Spare(pid, pipes, control_fd)
        except Refused:
            os.close(control_fd)
            pipes.close_outer()
        finally:
            pipes.close_inner()
            os.close(told_fd)

    def ended(self, pid: int) -> None:
        """Take note that a child ended, which may be the spare."""
        if self._spare is not None and self._spare.pid == pid:
            self._spare.discard()
            self._spare = None

    def _fork(self, pipes: Pipes, keep: int | None = None) -> int:
        """Fork, and in the child, where this returns 0, set up what all commands have. `keep` becomes its 3."""
        # A signal that comes before the command can die of it waits meanwhile, instead of being ignored as here.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            pid = os.fork()
            if pid == 0:
                self._set_up(pipes, keep)
        except OSError as error:
            raise Refused("no_process", f"no process can be started: {error.strerror}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        return pid

    def _set_up(self, pipes: Pipes, keep: int | None) -> None:
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            os.dup2(pipes.stdin, 0)
            os.dup2(pipes.stdout, 1)
            os.dup2(pipes.stderr, 2)
            for fd in self._cgroup_fds:
                os.write(fd, b"0")
            if keep is not None:
                os.dup2(keep, 3)
            # All other descriptors close when the command takes over; signals with a handler fall back then too.
            for number in IGNORED:
                signal.signal(number, signal.SIG_DFL)
            kernel.keep_orphans()
            if os.getppid() != 1:  # where no namespace ends with the agent, its commands do at least
                kernel.end_with_parent()
        except OSError:
            os._exit(NOT_EXECUTABLE)


def _become(request: dict[str, Any], *, is_helper: bool = False) -> NoReturn:
    """Become the program of a request."""
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


def _wait_and_become() -> NoReturn:
    """Wait, as a spare, for what to become; hold nothing of the agent's meanwhile, or no pipe of it would ever end."""
    try:
        os.closerange(_TOLD_FD + 1, 65536)
        os.set_inheritable(_TOLD_FD, False)
        head = os.read(_TOLD_FD, _LENGTH)
        if len(head) < _LENGTH:
            os._exit(0)
        size = int.from_bytes(head, "big")
        told = b""
        while len(told) < size:
            told += os.read(_TOLD_FD, size - len(told))
        _become(marshal.loads(told))  # noqa: S302  of the agent
    finally:
        os._exit(NOT_EXECUTABLE)


def _packed(request: dict[str, Any]) -> bytes:
    told = marshal.dumps(request)
    return len(told).to_bytes(_LENGTH, "big") + told


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
