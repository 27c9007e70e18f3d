"""The pane that says how a training run stands."""

from __future__ import annotations

import time
from collections.abc import Iterator

from textual.content import Content

from prime_cli.core.errors import PrimeError
from prime_cli.rl.alarms import alarms_of
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.runs import RunFacts, metrics_by_step
from prime_cli.viewer.reading.curve import draw_curve
from prime_cli.viewer.widgets.styled import BOLD, DIM, GOOD, WRONG, Line, heading, lines, pairs

_CURVE_HEIGHT = 12
STATE_STYLES = {"finished": GOOD, "running": "$text-accent", "stopped": "$text-warning"}


def run_details(facts: RunFacts, width: int) -> Content:
    """Return what a run is, its reward curve, and what its figures warn of; reads its metrics."""
    return lines(_all(facts, width))


def _all(facts: RunFacts, width: int) -> Iterator[Line]:
    yield ((facts.path.name, BOLD), ("   ", ""), (facts.state, STATE_STYLES.get(facts.state, "")))
    yield ((str(facts.path), DIM),)
    yield ()
    rows = [("environment", facts.environment), ("model", facts.model), ("steps", f"{facts.steps}/{facts.max_steps}")]
    if facts.first_reward is not None and facts.last_reward is not None:
        rows.append(("reward", f"{facts.first_reward:.3f} at first, {facts.last_reward:.3f} at last"))
    rows.append(("started", time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started))))
    for name, steps in (("weights of steps", facts.exported_steps), ("checkpoints", facts.checkpoints)):
        if steps:
            rows.append((name, ", ".join(map(str, steps[-8:]))))
    yield from pairs(rows)
    try:
        steps_so_far = metrics_by_step(RunDirectory(facts.path))
    except (PrimeError, ValueError, KeyError):
        return
    metric = "reward/mean" if any("reward/mean" in step for step in steps_so_far) else "loss/mean"
    points = [(step["step"], float(step[metric])) for step in steps_so_far if metric in step]
    curve = draw_curve(points, width=width, height=_CURVE_HEIGHT, floor=0.0 if metric == "reward/mean" else None)
    if curve:
        yield ()
        yield heading(metric)
        for line in curve:
            yield ((line, GOOD),)
    for alarm in alarms_of(steps_so_far):
        yield ()
        yield ((f"! {alarm.words}", WRONG),)
