"""For how long a process has shown no sign of life. Pure: clocks and signs are given.

Only time during which the watcher itself ran is counted, in small steps: a watcher that was stopped, or a machine that
was asleep, holds nobody else guilty when it wakes up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_STEP_S = 2.0


class Silence:
    """Counts the seconds since a sign of life last changed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sign: object = None
        self._seen = clock()
        self.silent_s = 0.0  # as of the last time that it was asked

    def after(self, sign: object) -> float:
        """Return the seconds of watching since `sign` was another; call it at least every two seconds."""
        now = self._clock()
        step_s, self._seen = min(now - self._seen, _LONGEST_STEP_S), now
        if sign != self._sign:
            self._sign, self.silent_s = sign, 0.0
        else:
            self.silent_s += step_s
        return self.silent_s
