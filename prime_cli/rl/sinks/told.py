"""How far a sink has come in the run's metrics: it is told nothing twice, also when a run goes back a few steps."""

from __future__ import annotations

import json

from prime_cli.core.files import write_bytes_atomically, write_text_atomically
from prime_cli.rl.run_directory import RunDirectory


def bytes_told(run: RunDirectory, name: str) -> int:
    """Return how many bytes of the metrics the sink `name` has had."""
    try:
        return int(run.sink_offset(name).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def remember_told(run: RunDirectory, name: str, count: int) -> None:
    """Remember how many bytes of the metrics the sink `name` has had."""
    write_text_atomically(run.sink_offset(name), str(count))


def cut_metrics(run: RunDirectory, step: int) -> None:
    """Remove the figures of steps after `step`; what a sink has had of the others stays told."""
    data = run.metrics.read_bytes() if run.metrics.exists() else b""
    kept: list[tuple[bytes, int]] = []
    end = 0
    for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        end += len(line)
        if int(json.loads(line)["step"]) <= step:
            kept.append((line, end))
    for name in run.sinks():
        told = bytes_told(run, name)
        remember_told(run, name, sum(len(line) for line, end in kept if end <= told))
    write_bytes_atomically(run.metrics, b"".join(line for line, _ in kept))
