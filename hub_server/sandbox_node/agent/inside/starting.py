"""How commands are started: as a spare that was forked ahead and waits for its program, else forked at once.

A fork of an interpreter is most of what a start takes.
"""

from __future__ import annotations

import os
import select

from . import kernel
from .becoming import IGNORED, NO_CLONE, NOT_EXECUTABLE, PID_LENGTH, become, packed, set_up
from .signals import signal

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .forking import Forker
    from .loop import Loop

    OnStarted = Callable[[int, "Pipes", dict[str, Any]], None]
    OnFailed = Callable[["Refused"], None]

_MOST_TOLD = 60_000  # what a pipe takes at once by default, whoever reads
_TOLD_WITHIN_S = 2.0  # by a spare, that it waits


class Refused(Exception):
    """A request cannot be met; `kind` is for the node, the text for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Pipes:
    """The three pipes of a command. Its own ends are inherited by it alone."""

    def __init__(self, *, with_input: bool) -> None:
        """Make them.

        Raises:
            OSError: there can be no more descriptors; none stays open.
        """
        self.input_fd: int | None = None
        opened: list[int] = []
        try:
            if with_input:
                self.stdin, self.input_fd = _pipe(opened)
                os.set_blocking(self.input_fd, False)
            else:
                self.stdin = os.open(os.devnull, os.O_RDONLY)
                opened.append(self.stdin)
            self.out_fd, self.stdout = _pipe(opened)
            self.error_fd, self.stderr = _pipe(opened)
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        os.set_blocking(self.out_fd, False)
        os.set_blocking(self.error_fd, False)

    def close_inner(self) -> None:
        """Close the command's ends, once it has them."""
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)

    def close_input(self) -> None:
        """Let the command read an empty input."""
        assert self.input_fd is not None
        os.close(self.input_fd)
        self.input_fd = None

    def close_outer(self) -> None:
        """Close our ends, of a command that did not come to be."""
        for fd in (self.input_fd, self.out_fd, self.error_fd):
            if fd is not None:
                os.close(fd)


def _pipe(opened: list[int]) -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    opened += (read_fd, write_fd)
    return read_fd, write_fd


class Spare:
    """A process that is set up as a command is and waits for its program; it ends with the agent."""

    def __init__(self, pipes: Pipes, control_fd: int) -> None:
        self.pipes, self._control_fd = pipes, control_fd
        os.set_blocking(control_fd, False)
        self.pid: int | None = None
        self.is_gone = False

    def look(self) -> None:
        """Take note of whether it waits by now, or has ended."""
        if self.pid is not None or self.is_gone:
            return
        try:
            told = os.read(self.pipes.out_fd, PID_LENGTH)
        except BlockingIOError:
            return
        if len(told) == PID_LENGTH:
            self.pid = int.from_bytes(told, "big")
        else:
            self.is_gone = True

    def take(self, told: bytes, *, with_input: bool) -> bool:
        """Let it become what it is told, a packed request; False where that cannot be, and nothing was started."""
        assert self.pid is not None
        kernel.kill(self.pid, signal.SIGCONT)  # an earlier command may have stopped it, which has the same user
        try:
            # Who has many pipes gets small ones, and one that is stopped reads nothing: it must not be waited for.
            is_told = os.write(self._control_fd, told) == len(told)
        except OSError:
            is_told = False
        if not is_told:
            self.discard()
            return False
        os.close(self._control_fd)
        if not with_input:
            self.pipes.close_input()
        return True

    def discard(self) -> None:
        """Let it end."""
        os.close(self._control_fd)
        self.pipes.close_outer()


class Starter:
    """Starts commands as children of the agent."""

    def __init__(self, loop: Loop, jobs_cgroup_fds: list[int]) -> None:
        self._loop, self._cgroup_fds = loop, jobs_cgroup_fds
        self._forker: Forker | None = None
        self._spare: Spare | None = None
        self._has_forker = True  # or may have one
        self._awaited: dict[Spare, Callable[[], None]] = {}  # by requests that wait for them, and go on by this

    def start(self, request: dict[str, Any], on_started: OnStarted, on_failed: OnFailed) -> None:
        """Start a command, now or as soon as there is a spare for it."""
        told = packed(request)
        spare, self._spare = self._spare, None
        if spare is None and len(told) <= _MOST_TOLD:
            spare = self._ask()
        if spare is None or len(told) > _MOST_TOLD:
            self._spare = spare
            self._start_at_once(request, on_started, on_failed)
            return

        def go_on(_events: int = 0) -> None:
            """Hand over what is to be run once the spare waits for it, or start without one where it never will."""
            assert spare is not None
            spare.look()
            if spare.pid is None and not spare.is_gone:
                self._loop.watch(spare.pipes.out_fd, select.EPOLLIN, go_on)
                return
            self._loop.cancel(timer)
            self._loop.forget(spare.pipes.out_fd)
            del self._awaited[spare]
            if spare.is_gone:
                spare.discard()
            elif spare.take(told, with_input=bool(request.get("stdin"))):
                assert spare.pid is not None
                on_started(spare.pid, spare.pipes, request)
                return
            self._start_at_once(request, on_started, on_failed)

        def give_up() -> None:
            assert spare is not None
            spare.is_gone = True
            if self._forker is not None:  # a command may have stopped it, which has the same user
                self._forker.kill()
                self._drop_forker()
            go_on()

        self._awaited[spare] = go_on
        timer = self._loop.after(_TOLD_WITHIN_S, give_up)
        go_on()

    def _start_at_once(self, request: dict[str, Any], on_started: OnStarted, on_failed: OnFailed) -> None:
        try:
            pipes = Pipes(with_input=bool(request.get("stdin")))
        except OSError as error:
            on_failed(Refused("no_process", f"no command can be started: {error.strerror}"))
            return
        try:
            pid = self._fork(pipes)
            if pid == 0:
                become(request)
        except Refused as refused:
            pipes.close_outer()
            on_failed(refused)
            return
        finally:
            pipes.close_inner()
        on_started(pid, pipes, request)

    def start_helper(self, request: dict[str, Any], pipes: Pipes, keep: int) -> int:
        """Return the process id of a helper of the agent, which no command may read; it has `keep` as its 3.

        Raises:
            Refused: there can be no more processes.
        """
        pid = self._fork(pipes, keep)
        if pid == 0:
            become(request, is_helper=True)
        return pid

    def prepare(self) -> None:
        """Have a spare for the next command."""
        self._look_after_spare()
        if self._spare is None:
            self._spare = self._ask()

    def _ask(self) -> Spare | None:
        """Return a new spare; None where there can be none."""
        if not self._has_forker:
            return None
        from .forking import Forker, ForkerGone

        try:
            if self._forker is None:
                self._forker = Forker(self._cgroup_fds)
            pipes = Pipes(with_input=True)
        except OSError:
            return None
        told_fd = control_fd = None
        try:
            told_fd, control_fd = os.pipe()
            self._forker.ask(pipes.stdin, pipes.stdout, pipes.stderr, told_fd)
        except (OSError, ForkerGone):
            pipes.close_outer()
            if control_fd is not None:
                os.close(control_fd)
            return None
        finally:
            pipes.close_inner()
            if told_fd is not None:
                os.close(told_fd)
        return Spare(pipes, control_fd)

    def ended(self, pid: int, status: int) -> None:
        """Take note that a child ended, which may be the spare, or what forks it."""
        if self._forker is not None and self._forker.pid == pid:
            self._drop_forker()
            self._has_forker = os.waitstatus_to_exitcode(status) != NO_CLONE
        for spare, go_on in list(self._awaited.items()):
            spare.look()
            spare.is_gone |= spare.pid == pid
            go_on()  # now: what it told was read, so its descriptor will not call
        self._look_after_spare()
        if self._spare is not None and self._spare.pid == pid:
            self._drop_spare()

    def _drop_forker(self) -> None:
        if self._forker is not None:
            self._forker.close()
            self._forker = None

    def _look_after_spare(self) -> None:
        if self._spare is not None:
            self._spare.look()
            if self._spare.is_gone:
                self._drop_spare()

    def _drop_spare(self) -> None:
        assert self._spare is not None
        self._spare.discard()
        self._spare = None

    def _fork(self, pipes: Pipes, keep: int | None = None) -> int:
        """Fork, and in the child, where this returns 0, set up what all commands have. `keep` becomes its 3."""
        # A signal that comes before the command can die of it waits meanwhile, instead of being ignored as here.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    set_up((pipes.stdin, pipes.stdout, pipes.stderr), self._cgroup_fds, keep)
                except OSError:
                    os._exit(NOT_EXECUTABLE)
        except OSError as error:
            raise Refused("no_process", f"no process can be started: {error.strerror}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
        return pid
