"""How many rollouts of an evaluation may be in flight when a server refuses requests because they are too many.

The number falls by a third with the first refusal of a pause and nothing starts until the pause is over; it grows by a
quarter when as many rollouts as it allows have ended without another refusal. (Training follows the load of its own
server instead, see `rl/orchestrator/adaptive_concurrency.py`; other people's servers only say no.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_CUT, _GROWTH = 0.67, 1.25


class Pace:
    """The rollouts that may be in flight: at most `most`, at least one unit of work.

    Args:
        clock: in seconds, never going back.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._open_at = -math.inf
        self._ended_well = 0
        self.limit = most
        self.num_refusals = 0

    @property
    def pause_s(self) -> float:
        """For how long nothing is started; 0 when nothing is waited for."""
        return max(0.0, self._open_at - self._clock())

    def refused(self, delay_s: float) -> None:
        """Take notice that the server refused a request, and that it will be sent again after `delay_s`."""
        now = self._clock()
        self.num_refusals += 1
        self._ended_well = 0
        if now >= self._open_at:
            self.limit = max(1, int(self.limit * _CUT))
        self._open_at = max(self._open_at, now + delay_s)

    def ended(self, num_rollouts: int) -> None:
        """Take notice that rollouts have ended."""
        self._ended_well += num_rollouts
        if self._ended_well >= self.limit and self.limit < self._most:
            self.limit = min(self._most, max(self.limit + 1, int(self.limit * _GROWTH)))
            self._ended_well = 0

    def delay(self, num_rollouts: int, in_flight: int) -> float:
        """Return how long to wait before so many rollouts start: 0 is now, infinity until others have ended."""
        if self.pause_s > 0:
            return self.pause_s
        return 0.0 if in_flight == 0 or in_flight + num_rollouts <= self.limit else math.inf
