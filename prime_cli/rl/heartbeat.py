"""The sign of life of a process of a run, and its own watch over the launcher.

A thread touches `status/NAME.beat` every second. A process that lives by an event loop lets the loop do it, so that a
stuck loop shows. The same thread looks at the launcher's beat: processes do not go on for ever beside a launcher that
is stopped and can neither end them nor tell anybody.

The launcher says by variables of the environment who a process is. Started by hand, without them, it does not beat.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.watchdog import Silence

INTERVAL_S = 1.0
LAUNCHER = "launcher"
_RUN, _NAME, _TIMEOUT = "PRIME_WATCHED_RUN", "PRIME_WATCHED_NAME", "PRIME_WATCHED_TIMEOUT_S"


def watched_as(run: RunDirectory, name: str, timeout_s: float) -> dict[str, str]:
    """Return the variables that let a child beat as `name`, and end when the launcher is silent for `timeout_s`."""
    return {_RUN: str(run.path.resolve()), _NAME: name, _TIMEOUT: str(timeout_s)}


class Heartbeat:
    """Beats as `name` from a thread until the process ends.

    Args:
        on_beat: called after every beat, in the thread.
    """

    def __init__(
        self,
        run: RunDirectory,
        name: str,
        *,
        on_beat: Callable[[], None] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._path = run.beat(name)
        self._on_beat = on_beat
        self._interval_s = interval_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._path.parent.mkdir(exist_ok=True)
        self._touch()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat only as long as `loop` takes turns."""
        self._loop = loop

    def stop(self) -> None:
        """Beat no more, from when this returns."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._interval_s):
            if self._loop is None:
                self._touch()
            else:
                try:
                    self._loop.call_soon_threadsafe(self._touch)
                except RuntimeError:  # the loop is closed: the process winds up, and shows that it does
                    self._loop = None
            if self._on_beat is not None:
                self._on_beat()

    def _touch(self) -> None:
        try:
            self._path.touch()
        except FileNotFoundError:  # the folder of the run was removed
            self._ended.set()


def start_heartbeat(suffix: str = "", *, keep_for_children: bool = False) -> Heartbeat | None:
    """Beat as the launcher wants it and end this process when the launcher is silent; None where nobody watches.

    Args:
        suffix: what tells this process from its siblings.
        keep_for_children: leave the variables to processes that this one starts, which take their own suffix.
    """
    if _RUN not in os.environ:
        return None
    read = os.environ.get if keep_for_children else os.environ.pop
    run, name, timeout_s = (str(read(variable)) for variable in (_RUN, _NAME, _TIMEOUT))
    watch = _LauncherWatch(RunDirectory(Path(run)), name, float(timeout_s))
    return Heartbeat(RunDirectory(Path(run)), name + suffix, on_beat=watch.look)


class _LauncherWatch:
    """Ends this process when the launcher has been silent for too long."""

    def __init__(self, run: RunDirectory, name: str, timeout_s: float) -> None:
        self._run = run
        self._name = name
        self._timeout_s = timeout_s
        self._silence = Silence()

    def look(self) -> None:
        """End the process when it is time, with words for whoever asks why."""
        silent_s = self._silence.after(self._run.last_beat(LAUNCHER))
        if not self._timeout_s or silent_s < self._timeout_s:
            return
        error = PrimeError(
            f"the launcher has been silent for {silent_s:.0f} s, so the run cannot be watched any more",
            hint="was `prime rl run` stopped, with SIGSTOP for instance? Ctrl-Z pauses a run as a whole",
        )
        print(f"error: {error.message}", file=sys.stderr, flush=True)  # noqa: T201 - the log of this process
        try:
            self._run.record_failure(self._name, error)
        finally:
            os._exit(1)
