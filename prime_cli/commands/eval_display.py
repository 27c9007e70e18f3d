"""What `prime eval` shows: progress on stderr, results on stdout."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.markup import escape

from prime_cli.core import output as out
from prime_cli.core.errors import PrimeError
from prime_cli.evals.record import EvalProgress, Observer
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import EvalSummary

_PLAIN_EVERY_S = 5.0
_ERRORS_SHOWN = 3


@contextmanager
def progress_display() -> Iterator[Observer]:
    """Yield an observer that shows a bar on a terminal, and a line every few seconds elsewhere."""
    if not out.is_interactive():
        yield _Lines().observe
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out.stderr_console()) as display:
        task = display.add_task("loading the environment", total=None)
        rate = _Rate()

        def observe(progress: EvalProgress) -> None:
            display.update(task, completed=progress.num_done, total=progress.total, description=rate.line(progress))

        yield observe


def print_summary(summary: EvalSummary) -> None:
    """Print the averages, what failed, and where the rollouts are."""
    if out.mode().json:
        out.print_json(summary.as_data())
        return
    good = summary.num_rollouts - summary.num_errors
    rows: list[tuple[str, str, object]] = [
        ("reward", str(summary.reward) if summary.reward else "none: every rollout failed", good)
    ]
    rows += [(name, str(estimate), estimate.n) for name, estimate in summary.metrics.items()]
    rows += [(f"pass@{k}", f"{value:.3f}", "") for k, value in summary.pass_at_k.items()]
    out.print_table(["", "mean ± standard error", "rollouts"], rows)
    for text, count in list(summary.errors.items())[:_ERRORS_SHOWN]:
        out.warn(f"{count} of {summary.num_rollouts} rollouts failed and are not in the mean: {escape(text)}")
    if len(summary.errors) > _ERRORS_SHOWN:
        out.warn(f"and {len(summary.errors) - _ERRORS_SHOWN} other kinds of failure; {summary.num_errors} in all")
    out.stdout_console().print(f"results: {escape(str(summary.path))}")
    out.note(f"look at them with: prime eval view {escape(str(summary.path))}")


def print_evaluations(directories: Sequence[EvalDirectory]) -> None:
    """Print a line for each evaluation; one that cannot be read is named on stderr."""
    rows = []
    for directory in directories:
        try:
            rows.append((directory, directory.read_metadata()))
        except PrimeError as error:
            out.warn(escape(error.message))
    if out.mode().json:
        out.print_json({"evaluations": [{"path": str(d.path), **m} for d, m in rows], "total": len(rows)})
        return
    if not rows:
        out.note("no evaluation here yet; run one with `prime eval run ENV -m MODEL`")
        return
    columns = ["environment", "model", "reward", "rollouts", "errors", "date", "path"]
    out.print_table(columns, [_cells(directory, metadata) for directory, metadata in rows])


def _cells(directory: EvalDirectory, metadata: dict[str, Any]) -> tuple[object, ...]:
    reward, error = metadata.get("avg_reward"), metadata.get("reward_standard_error")
    shown = "-" if reward is None else f"{reward:.3f}" + ("" if error is None else f" ± {error:.3f}")
    names = ("env_id", "model")
    counts = ("num_rollouts", "num_errors", "date")
    known = {name: value if isinstance(value, str | int) else json.dumps(value) for name, value in metadata.items()}
    return (
        *(known.get(name, "?") for name in names), shown,
        *(known.get(name, "") for name in counts), str(directory.path),
    )  # fmt: skip


class _Rate:
    """Says how far it is, and how fast since the first look."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def line(self, progress: EvalProgress) -> str:
        now = time.monotonic()
        self._first = self._first or (now, progress.num_done)
        seconds, done = now - self._first[0], progress.num_done - self._first[1]
        parts = ["no reward yet" if progress.mean is None else f"reward {progress.mean:.3f}"]
        if progress.num_errors:
            parts.append(f"{progress.num_errors} errors")
        if done and seconds > 0:
            parts.append(f"{done / seconds:.1f} rollouts/s")
        return ", ".join(parts)


class _Lines:
    def __init__(self) -> None:
        self._rate = _Rate()
        self._printed = time.monotonic()

    def observe(self, progress: EvalProgress) -> None:
        line = self._rate.line(progress)
        if progress.num_done == progress.total or time.monotonic() - self._printed > _PLAIN_EVERY_S:
            self._printed = time.monotonic()
            out.note(f"{progress.num_done}/{progress.total}  {line}")
