"""Rate limits on what costs the hub much, counted in this process for each user, or for each address without one."""

from __future__ import annotations

import math
import time

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from hub_server.accounts.tables import User
from hub_server.errors import TooManyRequests

# Generous: the published command line never tries again after a 429, so only what no person or CI does is refused.
LIMITS: dict[str, str] = {
    "generate_challenge": "60 per minute",
    "answer_challenge": "60 per minute",
    "add_user": "600 per hour",
    "create_key": "120 per hour",
    "create_team": "60 per hour",
    "send_feedback": "60 per hour",
    "announce_wheel": "3000 per minute",
    "announce_version": "3000 per minute",
    "legacy_upload": "3000 per minute",
    "begin_evaluation": "3000 per minute",
    "add_samples": "3000 per minute",
    "upload_traces": "3000 per minute",
    "inspect_source": "3000 per minute",
    "fork_environment": "240 per hour",
    "retry_action": "240 per hour",
}
"""How often each route may be called; routes that are not named are not limited."""


class RateLimiter:
    """Counts calls by route and caller. `enabled` false counts nothing."""

    def __init__(self, *, enabled: bool) -> None:
        self._rules: dict[str, RateLimitItem] = {name: parse(text) for name, text in LIMITS.items()} if enabled else {}
        self._strategy = SlidingWindowCounterRateLimiter(MemoryStorage())

    def check(self, route: str, user: User | None, address: str) -> None:
        """Count a call.

        Raises:
            TooManyRequests: the caller called this route too often.
        """
        rule = self._rules.get(route)
        if rule is None:
            return
        caller = user.id if user is not None else address
        if self._strategy.hit(rule, route, caller):
            return
        wait_s = max(1, math.ceil(self._strategy.get_window_stats(rule, route, caller).reset_time - time.time()))
        raise TooManyRequests(
            f"too many requests: this hub takes {rule} of these; try again in {wait_s} s", retry_after_s=wait_s
        )
