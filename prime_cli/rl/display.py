"""What a person sees of a running training: a live panel on a terminal, one line per step elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from prime_cli.rl.alarms import Alarm, alarms_of, error_kinds
from prime_cli.rl.evaluation.output import SOURCE, eval_line
from prime_cli.rl.launcher import PROCESSES
from prime_cli.rl.run_directory import RunDirectory, read_metrics

_BARS = "▁▂▃▄▅▆▇█"
_EVALUATIONS = 4
_OUTCOMES = ("reward/mean", "/reward", "avg@k", "loss")


class StepRecords:
    """Merges the records of a run's metrics file by step, reading only what is new."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Any]] = {}
        self.num_records = 0
        self.evaluations: list[dict[str, Any]] = []
        self._offset = 0

    def update(self, run: RunDirectory) -> list[int]:
        """Read on; return the steps that became complete (both sources have reported), in order."""
        records, self._offset = read_metrics(run.metrics, after_byte=self._offset)
        self.num_records += len(records)
        complete = []
        for record in records:
            step = self.steps.setdefault(record["step"], {"sources": set()})
            step.update(record)
            if record["source"] == SOURCE:
                self.evaluations.append(record)
            step["sources"].add(record["source"])
            if step["sources"] >= {"orchestrator", "trainer"}:
                complete.append(record["step"])
        return complete

    def in_order(self) -> list[dict[str, Any]]:
        """Return what is known of every step so far, in order."""
        return [self.steps[step] for step in sorted(self.steps)]

    def latest(self) -> dict[str, Any]:
        """Return the newest value of every figure."""
        merged: dict[str, Any] = {}
        for step in self.in_order():
            # Kinds of errors are told only where there are any; those of a step before must not stay.
            merged = {key: value for key, value in merged.items() if not key.startswith("error/")} | step
        return {key: value for key, value in merged.items() if key != "sources"}

    def rewards(self) -> list[float]:
        """Return the mean reward of every step so far, in order."""
        return [self.steps[s]["reward/mean"] for s in sorted(self.steps) if "reward/mean" in self.steps[s]]


class PlainDisplay:
    """One line per finished step, and a line whenever what is waited for changes during start-up."""

    def __init__(self, console: Console, max_steps: int) -> None:
        self._console = console
        self._max_steps = max_steps
        self._records = StepRecords()
        self._started = time.monotonic()
        self._last_status = ""
        self._sounding: set[str] = set()

    def observe(self, run: RunDirectory) -> None:
        """Print what is new."""
        known = self._records.num_records
        told = len(self._records.evaluations)
        for step in self._records.update(run):
            self._console.print(step_line(self._records.steps[step], self._max_steps), markup=False)
        for record in self._records.evaluations[told:]:
            self._console.print(eval_line(record), markup=False)
        if known != self._records.num_records:
            self._sound(alarms_of(self._records.in_order()))
        if not self._records.steps:
            status = "; ".join(f"{name}: {doing}" for name, doing, _ in statuses(run))
            if status != self._last_status:
                self._last_status = status
                self._console.print(f"[{time.monotonic() - self._started:5.1f} s] {status}", markup=False)

    def _sound(self, alarms: list[Alarm]) -> None:
        """Print alarms when they begin, not at every step that they last."""
        for alarm in alarms:
            if alarm.figure not in self._sounding:
                self._console.print(f"warning: {alarm.words}", style="yellow", markup=False)
        self._sounding = {alarm.figure for alarm in alarms}

    def note(self, text: str) -> None:
        """Print a remark."""
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Nothing is left open."""


class LiveDisplay:
    """A panel that shows the reward curve, the figures that matter and what every process is waiting for."""

    def __init__(self, console: Console, max_steps: int) -> None:
        self._max_steps = max_steps
        self._records = StepRecords()
        self._started = time.monotonic()
        self._latest: dict[str, Any] = {}
        self._alarms: list[Alarm] = []
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def observe(self, run: RunDirectory) -> None:
        """Draw what is known now."""
        known = self._records.num_records
        self._records.update(run)
        if known != self._records.num_records:
            self._latest, self._alarms = self._records.latest(), alarms_of(self._records.in_order())
        self._live.update(self._panel(run), refresh=True)

    def note(self, text: str) -> None:
        """Print a remark above the panel."""
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Leave the last state of the panel on the terminal."""
        self._live.stop()

    def _panel(self, run: RunDirectory) -> RenderableType:
        rewards = self._records.rewards()
        title = Text.assemble(
            ("prime rl  ", "bold"), (str(run.path), "cyan"),
            f"  step {len(rewards)}/{self._max_steps}  {time.monotonic() - self._started:.0f} s",
        )  # fmt: skip
        figures = Table.grid(padding=(0, 3))
        for row in figure_rows(self._latest, {alarm.figure for alarm in self._alarms}):
            figures.add_row(*(Text(f"{name} {value}", style=style) for name, value, style in row))
        waiting = Table.grid(padding=(0, 2))
        for name, doing, seconds in statuses(run):
            waiting.add_row(Text(name, style="bold"), doing, f"{seconds:.0f} s" if seconds >= 1 else "")
        curve = Text(sparkline(rewards, width=60) or "(no step yet)", style="green")
        warnings = [Text(f"! {alarm.words}", style="bold red") for alarm in self._alarms]
        return Group(title, Text.assemble("reward ", curve), figures, *warnings, waiting)


def figure_rows(latest: dict[str, Any], alarmed: Collection[str] = ()) -> list[list[tuple[str, str, str]]]:
    """Return the figures of the panel as rows of (name, value, style): the ten of docs/metrics.md, and evaluations.

    Args:
        latest: the newest value of each figure.
        alarmed: the figures that are red.
    """

    def shown(words: str, key: str, value: str, style: str = "") -> tuple[str, str, str]:
        return words, value, "bold red" if key in alarmed else style

    def figure(key: str, form: str) -> str:
        return format(latest[key], form) if key in latest else "-"

    staleness = f"{figure('off_policy/mean', '.1f')} (max {figure('off_policy/max', 'd')})"
    kinds = error_kinds(latest)
    errors = figure("errors", "d") + (f" ({kinds})" if kinds else "")
    rows = [
        [
            shown("reward", "reward/mean", figure("reward/mean", ".3f"), "bold"),
            shown("alike groups", "groups/zero_advantage", figure("groups/zero_advantage", ".0%")),
            shown("staleness", "off_policy/mean", staleness),
            shown("mismatch KL", "mismatch_kl/mean", figure("mismatch_kl/mean", ".1e")),
            shown("entropy", "entropy/mean", figure("entropy/mean", ".3f")),
        ],
        [
            shown("tokens/s", "perf/throughput", figure("perf/throughput", ",.0f")),
            shown("waiting", "time/wait_for_batch", f"{figure('time/wait_for_batch', '.1f')} s"),
            shown("grad norm", "optim/grad_norm", figure("optim/grad_norm", ".3f")),
            shown("length", "completion_tokens/mean", figure("completion_tokens/mean", ".0f")),
            shown("errors", "errors", errors, "red" if latest.get("errors") else ""),
        ],
    ]
    evaluations = [key for key in latest if key.startswith(("eval/", "val/")) and key.endswith(_OUTCOMES)]
    if evaluations:
        rows.append([shown(key, key, figure(key, ".3f"), "cyan") for key in evaluations[:_EVALUATIONS]])
    return rows


def statuses(run: RunDirectory) -> list[tuple[str, str, float]]:
    """Return (process, what it does, for how many seconds) of every process that has said so."""
    known = []
    for name in PROCESSES:
        status = run.read_status(name)
        if status is not None:
            known.append((name, *status))
    return known


def step_line(record: dict[str, Any], max_steps: int) -> str:
    """Return one step as a line of log."""
    errors = f"  errors {record['errors']} ({error_kinds(record)})" if record["errors"] else ""
    return (
        f"step {record['step']}/{max_steps}  reward {record['reward/mean']:.3f}  "
        f"staleness {record['off_policy/mean']:.1f}  mismatch {record['mismatch_kl/mean']:.1e}  "
        f"entropy {record['entropy/mean']:.3f}  {record['perf/throughput']:,.0f} tokens/s  "
        f"waited {record['time/wait_for_batch']:.2f} s for rollouts{errors}"
    )


def sparkline(values: list[float], *, width: int) -> str:
    """Return the values as a line of block characters between their least and greatest, averaged to `width` columns."""
    if not values:
        return ""
    count = min(width, len(values))
    columns = [
        sum(values[i * len(values) // count : (i + 1) * len(values) // count])
        / ((i + 1) * len(values) // count - i * len(values) // count)
        for i in range(count)
    ]
    low, high = min(columns), max(columns)
    scale = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / scale * (len(_BARS) - 1))] for value in columns)
