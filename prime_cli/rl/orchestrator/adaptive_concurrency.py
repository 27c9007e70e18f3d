"""How many rollouts are in flight, by what the inference server says of its load: a state machine without a clock.

    steady     grows by a quarter when a pipeline's worth of rollouts has ended under light load
    draining   was cut; what is in flight above the limit ends by itself, or is given up when the cache is nearly full
    cooling    has drained; does not grow for a few looks, and a new overload halves it

A server that is given too much preempts: it throws away the cache of a request and computes it again. One that is given
too little waits. Growing is slow and cutting quick, since only the first is undone by the next look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LIGHT_USAGE, HEAVY_USAGE, CRITICAL_USAGE, TARGET_USAGE = 0.6, 0.8, 0.9, 0.7
_GROWTH = 1.25
_USED_SHARE = 0.9
_QUEUE_SHARE, _QUEUE_LOOKS = 0.5, 6
_COOLING_LOOKS = 6
_STALE_S = 15.0
_CUTS = {"preemption": 0.8, "queue": 0.9, "again": 0.5}


@dataclass(frozen=True)
class ServerLoad:
    """What a server says of itself: the used share of its cache, its requests, and preemptions since its start."""

    usage: float
    running: int
    waiting: int
    preemptions: int


class AdaptiveConcurrency:
    """The number of rollouts that may be in flight; it is a `Concurrency`.

    Args:
        initial: the number to begin with.
        low: the least that it falls to.
        high: the most that it grows to.
    """

    def __init__(self, initial: int, *, low: int, high: int) -> None:
        self._low = low
        self._high = high
        self._limit = self._within(initial)
        self._phase: Literal["steady", "draining", "cooling"] = "steady"
        self._cooling = 0
        self._queued_looks = 0
        self._preemptions: int | None = None
        self._last_look: float | None = None
        self._ended_at_growth = 0
        self.cuts = 0
        self.load: ServerLoad | None = None

    def limit(self) -> int:
        """Return the rollouts that may be in flight at this moment."""
        return self._limit

    def look(self, load: ServerLoad, *, now_s: float, in_flight: int, ended: int) -> int:
        """Take notice of the server's load.

        Args:
            now_s: of a clock that never goes back.
            in_flight: rollouts that are in flight.
            ended: rollouts that have ended since the start of the run.

        Returns:
            How many rollouts are to be given up, because the cache would not hold them any longer.
        """
        current = self._last_look is None or now_s - self._last_look < _STALE_S
        overload = self._overload(load)
        self._last_look, self.load = now_s, load
        if self._phase == "draining" and in_flight <= self._limit:
            self._phase, self._cooling = "cooling", _COOLING_LOOKS
        elif self._phase == "cooling":
            self._cooling -= 1
            self._phase = "cooling" if self._cooling > 0 else "steady"
        if overload is not None and self._phase != "draining":
            self._cut(overload, load, in_flight, ended)
        elif self._phase == "steady" and current and self._may_grow(load, in_flight, ended):
            self._limit = self._within(int(max(self._limit * _GROWTH, self._limit + 1)))
            self._ended_at_growth = ended
        return max(in_flight - self._limit, 0) if load.usage > CRITICAL_USAGE else 0

    def metrics(self) -> dict[str, float | int]:
        """Return figures for the record of a step."""
        values: dict[str, float | int] = {"concurrency/limit": self._limit, "concurrency/cuts": self.cuts}
        if self.load is not None:
            values["concurrency/cache_usage"] = self.load.usage
            values["concurrency/waiting"] = self.load.waiting
        return values

    def _overload(self, load: ServerLoad) -> Literal["usage", "preemption", "queue"] | None:
        preempted = self._preemptions is not None and load.preemptions > self._preemptions
        self._preemptions = load.preemptions
        self._queued_looks = self._queued_looks + 1 if load.waiting > _QUEUE_SHARE * load.running else 0
        if load.usage > HEAVY_USAGE:
            return "usage"
        if preempted:
            return "preemption"
        return "queue" if self._queued_looks >= _QUEUE_LOOKS else None

    def _cut(self, why: Literal["usage", "preemption", "queue"], load: ServerLoad, in_flight: int, ended: int) -> None:
        if self._phase == "cooling":
            wanted = self._limit * _CUTS["again"]
        elif why == "usage":
            wanted = in_flight * TARGET_USAGE / load.usage
        else:
            wanted = self._limit * _CUTS[why]
        self._limit = self._within(int(min(wanted, self._limit)))
        self._phase, self._queued_looks, self._ended_at_growth = "draining", 0, ended
        self.cuts += 1

    def _may_grow(self, load: ServerLoad, in_flight: int, ended: int) -> bool:
        return (
            load.usage < LIGHT_USAGE
            and load.waiting == 0
            and in_flight >= _USED_SHARE * self._limit
            and ended - self._ended_at_growth >= self._limit
        )

    def _within(self, rollouts: int) -> int:
        return max(self._low, min(rollouts, self._high))
