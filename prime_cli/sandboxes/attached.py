"""A terminal, or a pipe, attached to a command in a sandbox: output out, input in, Ctrl-C on to the command."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO

from prime_cli.core.errors import PrimeError
from prime_cli.sandboxes.gateway import Began, Finished, Gateway, RemoteCommand, Wrote

_INPUT_BYTES = 64 * 1024
# Ctrl-C asks the command to end, a second one ends it, and a third one leaves without it.
_ON_CTRL_C = (signal.SIGINT, signal.SIGKILL)


class Attached:
    """One command, for as long as it runs."""

    def __init__(self, gateway: Gateway, command: RemoteCommand, stdin: IO[bytes] | None) -> None:
        self._gateway, self._command, self._stdin = gateway, command, stdin
        self._pid: int | None = None
        self._interrupts = 0
        self._signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def copy_to(self, stdout: IO[bytes], stderr: IO[bytes]) -> Finished:
        """Run the command, copy what it writes as it comes, and return how it ended.

        A reader of ours that goes away, such as `head`, ends the command too.
        """
        streams = {1: stdout, 2: stderr}

        def write(number: int, data: bytes) -> None:
            streams[number].write(data)
            streams[number].flush()

        try:
            return self.each(write)
        except BrokenPipeError:
            # Python would complain once more when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Finished(128 + signal.SIGPIPE, "")

    def each(self, write: Callable[[int, bytes], None]) -> Finished:
        """Run the command, give `write` each piece of output with its stream (1, 2), and return how it ended.

        Raises:
            PrimeError: it could not be run, or took too long.
        """
        with self._ctrl_c(), contextlib.closing(self._gateway.run(self._command)) as events:
            for event in events:
                if isinstance(event, Began) and self._pid is None:
                    self._pid = event.pid
                    threading.Thread(target=self._send_signals, daemon=True).start()
                    if self._stdin is not None:
                        threading.Thread(target=self._send_input, args=(self._stdin,), daemon=True).start()
                elif isinstance(event, Wrote):
                    write(event.stream, event.data)
                elif isinstance(event, Finished):
                    return event
        raise PrimeError("the gateway did not say how the command ended", hint="try again")

    @contextlib.contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._signals.put(None)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._pid is None or self._interrupts >= len(_ON_CTRL_C):
            raise KeyboardInterrupt
        self._signals.put(_ON_CTRL_C[self._interrupts])
        self._interrupts += 1

    def _send_signals(self) -> None:
        while (number := self._signals.get()) is not None:
            # It may have ended meanwhile; then there is nothing to send it to.
            with contextlib.suppress(PrimeError):
                self._gateway.send_signal(self._pid or 0, number)

    def _send_input(self, stdin: IO[bytes]) -> None:
        # From the descriptor: what is there, and not until a buffer is full. Once the command has ended nobody listens.
        pieces = iter(lambda: os.read(stdin.fileno(), _INPUT_BYTES), b"")
        with contextlib.suppress(PrimeError, OSError, RuntimeError):
            self._gateway.stream_input(self._pid or 0, pieces)
