"""Commands: started, fed, followed, limited, and killed with all that they started."""

from __future__ import annotations

import os
import select
import time

from . import kernel
from .frames import CHUNK, ENDED, FAILED, STARTED, STDERR, STDOUT, WINDOW, credit_frame, json_frame
from .loop import Loop
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# What the agent does not want to die of, and no command may inherit; the last two are ignored by Python itself.
IGNORED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE = 127, 126


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


class Job:
    """One command that runs, on one channel."""

    def __init__(self, loop: Loop, channel: int, pid: int, pipes: Pipes, request: dict[str, Any]) -> None:
        self.channel, self.pid = channel, pid
        self._loop = loop
        self._started = time.monotonic()
        self._fds = {STDOUT: pipes.out_fd, STDERR: pipes.error_fd}
        self._written = {STDOUT: 0, STDERR: 0}
        self._most = request.get("most_output")
        self._credit = WINDOW
        self._waiting: set[int] = set()
        self._input_fd = pipes.input_fd
        self._input = bytearray()
        self._input_ends = False
        self.timed_out = self.was_cut = False
        for kind, fd in self._fds.items():
            loop.watch(fd, select.EPOLLIN, self._reader(kind))
        timeout_s = request.get("timeout_s")
        self._timer = loop.after(timeout_s, self._time_out) if timeout_s is not None else None
        self.on_overrun: Callable[[Job], None] = _no_overrun

    # What it writes.

    def allow(self, size: int) -> None:
        """Let the node have `size` bytes more."""
        self._credit += size
        self._go_on()

    def _reader(self, kind: int) -> Callable[[int], None]:
        def read(_events: int) -> None:
            self._read(kind)

        return read

    def _read(self, kind: int) -> None:
        """Pass on what one pipe holds, as far as the node wants it."""
        fd = self._fds.get(kind)
        if fd is None:
            return
        if self._credit <= 0 or self._loop.is_clogged:
            self._loop.forget(fd)
            if not self._waiting and self._credit > 0:
                self._loop.when_clear(self._go_on)
            self._waiting.add(kind)
            return
        try:
            data = os.read(fd, min(CHUNK, self._credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(kind)
            return
        self._pass_on(kind, data)

    def _pass_on(self, kind: int, data: bytes) -> None:
        if self._most is not None:
            data = data[: self._most - self._written[kind]]
        if data:
            self._written[kind] += len(data)
            self._credit -= len(data)
            self._loop.send_frame(kind, self.channel, data)
        if self._most is not None and self._written[kind] >= self._most and not self.was_cut:
            self.was_cut = True
            self._kill_all()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for kind in waiting:
            fd = self._fds.get(kind)
            if fd is not None:
                self._loop.watch(fd, select.EPOLLIN, self._reader(kind))

    def _drop(self, kind: int) -> None:
        fd = self._fds.pop(kind, None)
        if fd is not None:
            self._loop.forget(fd)
            os.close(fd)

    # What it reads.

    def feed(self, data: bytes) -> None:
        """Give it input; none at all is the end of it."""
        if self._input_fd is None:
            return
        if not data:
            self._input_ends = True
        self._input += data
        self._write_input()

    def _write_input(self, _events: int = 0) -> None:
        assert self._input_fd is not None
        while self._input:
            try:
                sent = os.write(self._input_fd, memoryview(self._input)[:CHUNK])
            except BlockingIOError:
                self._loop.watch(self._input_fd, select.EPOLLOUT, self._write_input)
                return
            except OSError:  # nobody reads it any more
                self._loop.send(credit_frame(self.channel, len(self._input)))
                self._input.clear()
                self._input_ends = True
                break
            del self._input[:sent]
            self._loop.send(credit_frame(self.channel, sent))
        self._loop.forget(self._input_fd)
        if self._input_ends:
            os.close(self._input_fd)
            self._input_fd = None

    # Its end.

    def signal(self, number: int) -> None:
        """Send it a signal, and to its group, as a terminal does; a kill takes all below it too."""
        if number == signal.SIGKILL:
            self._kill_all()
        else:
            kernel.kill_group(self.pid, number)

    def _time_out(self) -> None:
        self.timed_out = True
        self._kill_all()

    def _kill_all(self) -> None:
        if not kernel.kill_tree(self.pid):
            self.on_overrun(self)

    def finish(self, status: int, usage: Any) -> None:
        """Say how it ended, after what it wrote until then; what it left running holds nothing up."""
        self._loop.cancel(self._timer)
        self._drain()
        for kind in list(self._fds):
            self._drop(kind)
        if self._input_fd is not None:
            self._loop.forget(self._input_fd)
            os.close(self._input_fd)
            self._input_fd = None
        code = os.waitstatus_to_exitcode(status)
        self._loop.send(
            json_frame(
                ENDED,
                self.channel,
                {
                    "exit_code": code if code >= 0 else 128 - code,
                    "signal": -code if code < 0 else None,
                    "timed_out": self.timed_out,
                    "cut": self.was_cut,
                    "cpu_s": usage[0] + usage[1],
                    "peak_memory_bytes": usage[2] * 1024,
                    "wall_s": time.monotonic() - self._started,
                },
            )
        )

    def _drain(self) -> None:
        # Credit bounds what the node holds of a command that runs; of one that ended there is a pipe's content at most.
        self._credit = max(self._credit, 4 * WINDOW)
        for kind in (STDOUT, STDERR):
            fd = self._fds.get(kind)
            while fd is not None and not self.was_cut:
                try:
                    data = os.read(fd, CHUNK)
                except OSError:
                    break
                if not data or self._credit <= 0:
                    break
                self._pass_on(kind, data)


class Starter:
    """Starts commands as children of the agent."""

    def __init__(self, jobs_cgroup_fds: list[int]) -> None:
        self._cgroup_fds = jobs_cgroup_fds

    def start(self, request: dict[str, Any], pipes: Pipes, keep: int | None = None) -> int:
        """Return the process id of a new command.

        `keep` is one more descriptor for it, as its 3; it is a helper of the agent then, which no command may read.

        Raises:
            Refused: there can be no more processes.
        """
        # A signal that comes before the command can die of it waits meanwhile, instead of being ignored as here.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    self._become(request, pipes, keep)
                finally:
                    os._exit(NOT_EXECUTABLE)
        except OSError as error:
            raise Refused("no_process", f"no process can be started: {error.strerror}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        return pid

    def _become(self, request: dict[str, Any], pipes: Pipes, keep: int | None) -> None:
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
        try:
            if request.get("user") is not None:
                _become_user(request["user"])
            os.chdir(request.get("cwd") or "/")
        except OSError as error:
            _complain(f"{error.filename or request.get('user')}: {error.strerror}")
        if request.get("memory_bytes") is not None:
            kernel.limit_memory(request["memory_bytes"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        if keep is not None:
            kernel.stay_unreadable()
        argv, env = request["argv"], request["env"]
        try:
            _execute(argv, env)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            _complain(f"{argv[0]}: {error.strerror}", code)


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


def _no_overrun(_job: Job) -> None:
    """Do nothing; the agent sets what is done."""


def started_frame(channel: int, pid: int) -> bytes:
    """Return the frame that tells the process id of a command."""
    return json_frame(STARTED, channel, {"pid": pid})


def failed_frame(channel: int, refused: Refused) -> bytes:
    """Return the frame that says why a request was not met."""
    return json_frame(FAILED, channel, {"kind": refused.kind, "message": refused.message})
