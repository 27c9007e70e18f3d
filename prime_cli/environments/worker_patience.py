"""Waits while a model's server says that it is asked too much; used by `worker.py`, in the workspace's interpreter.

A rollout of many turns must not be lost because one of its requests came at a bad moment. So a request that is refused
for that reason is sent again after the time that the server names, else after ever longer times; meanwhile the other
requests of this process to the same server wait too.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import Awaitable, Callable, Mapping

TOO_MANY_REQUESTS = 429
_BUSY = (TOO_MANY_REQUESTS, 503, 529)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 1.0, 60.0
_SPREAD = 0.25
# A provider's word for an account without money: no waiting helps.
_NEVER = b"insufficient_quota"


class Patience:
    """How requests to one server wait.

    Args:
        patience_s: the longest that a request waits in all; with 0 it never does.
        tell: is told each time that a request has to wait, and for how many seconds.
    """

    def __init__(
        self,
        patience_s: float,
        tell: Callable[[float], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._patience_s = patience_s
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._open_at = 0.0

    async def wait(self) -> None:
        """Wait until the server may be asked."""
        while (left := self._open_at - self._clock()) > 0:
            # Spread out, because those that wait would otherwise all come at once.
            await self._sleep(left + self._chance() * min(1.0, _SPREAD * left))

    def allows_another_try(
        self, status: int, headers: Mapping[str, str], body: bytes, since: float, tries: int
    ) -> bool:
        """Say whether a refused request is to `wait` and be sent again.

        Args:
            since: of the clock, when it was sent first.
            tries: how often it was sent.
        """
        named = retry_after_s(headers)
        if status not in _BUSY or (status != TOO_MANY_REQUESTS and named is None) or _NEVER in body:
            return False
        delay = named if named is not None else min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** (tries - 1))
        now = self._clock()
        if now - since + delay > self._patience_s:
            return False
        self._open_at = max(self._open_at, now + delay)
        self._tell(delay)
        return True

    def now(self) -> float:
        """Return the time of the clock."""
        return self._clock()


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: a number or a date in `Retry-After`, or `retry-after-ms`."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("Retry-After") or headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if value is None else max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value or "").timestamp() - time.time())
    except ValueError:
        return None
