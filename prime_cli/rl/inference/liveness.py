"""Whether a server still computes: it answers a request for one token, or any other, within a bound.

A health route says that the process answers, not that its engine runs; an engine can be stuck behind a route that is
well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prime_cli.core.errors import PrimeError
from prime_cli.rl.inference.replicas import Replica

_PROBES_PER_BOUND = 3

Probe = Callable[[Replica], Awaitable[None]]
"""Has the server compute one token; returns when it has, raises OSError when it cannot be reached."""


class ServerSilent(PrimeError):
    """A server has computed nothing for as long as it may take."""


@dataclass
class Pauses:
    """Whether the servers are paused, and how often they have been: a paused server answers nothing, and is well."""

    now: bool = False
    count: int = 0

    def begin(self) -> None:
        """The servers are paused."""
        self.now, self.count = True, self.count + 1

    def end(self) -> None:
        """They go on."""
        self.now = False


async def watch(replica: Replica, probe: Probe, pauses: Pauses, *, timeout_s: float) -> None:
    """Probe for ever.

    Raises:
        ServerSilent: the server answered neither the probe nor anything else within `timeout_s`.
    """
    while True:
        await asyncio.sleep(timeout_s / _PROBES_PER_BOUND)
        answers, paused_before = replica.answers, pauses.count
        if pauses.now:
            continue
        try:
            async with asyncio.timeout(timeout_s):
                await _until_reached(replica, probe, timeout_s / (4 * _PROBES_PER_BOUND))
        except TimeoutError:
            if replica.answers == answers and pauses.count == paused_before:
                raise ServerSilent(
                    f"{replica.name} has computed nothing for {timeout_s:.0f} s, and {replica.in_flight} requests wait",
                    hint="it is stopped or stuck; raise inference.liveness_timeout_s if its model is that slow",
                ) from None


async def _until_reached(replica: Replica, probe: Probe, wait_s: float) -> None:
    while True:
        try:
            return await probe(replica)
        except OSError:  # it died, which its launcher sees too, or its backlog is full
            await asyncio.sleep(wait_s)
