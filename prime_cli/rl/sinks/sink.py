"""What a sink is, and how a run's figures get to one.

`metrics.jsonl` is the queue: a sink reads it at its own pace, so one that is slow or blocked holds nobody up, loses
nothing, and needs no memory for what it has not taken yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prime_cli.rl.run_directory import RunDirectory, read_metrics
from prime_cli.rl.sinks.told import bytes_told, remember_told

_NOT_FIGURES = ("step", "source", "time")


class Sink(Protocol):
    """Takes figures."""

    def write(self, step: int, figures: Mapping[str, float | int], at: float) -> None:
        """Take the figures that one process wrote for one step `at` a time, in seconds since the epoch."""

    def close(self) -> None:
        """Deliver all that was taken; called once, at the end."""


def feed(run: RunDirectory, name: str, sink: Sink, *, ended: Callable[[], bool], poll_s: float = 0.5) -> None:
    """Give `sink` every record of the run that it has not had, until the run has ended and nothing is left.

    How far it has come is kept under `name`, so that a run that is resumed tells it nothing twice.
    """
    offset = bytes_told(run, name)
    while True:
        last_round = ended()  # asked before reading: what was written until now is read in this round
        records, offset = read_metrics(run.metrics, after_byte=offset)
        for record in records:
            sink.write(int(record["step"]), figures_in(record), float(record["time"]))
        if records:
            remember_told(run, name, offset)
        if last_round:
            break
        time.sleep(poll_s)
    sink.close()


def figures_in(record: Mapping[str, Any]) -> dict[str, float | int]:
    """Return the numbers of a record."""
    return {
        name: value
        for name, value in record.items()
        if name not in _NOT_FIGURES and isinstance(value, int | float) and not isinstance(value, bool)
    }
