"""How quickly a sandbox may ask and be answered, so that one that never stops leaves the node time for the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Pace:
    """Lets `burst` requests (or bytes) through at once, and `per_second` in the long run: a token bucket."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._left, self._at = burst, clock()

    def wait_s(self, amount: int = 1) -> float:
        """Take a turn, and return how long it is to be waited for."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        return max(0.0, -self._left / self._per_second)

    async def turn(self, amount: int = 1) -> None:
        """Return when it is one's turn."""
        if wait_s := self.wait_s(amount):
            await asyncio.sleep(wait_s)
