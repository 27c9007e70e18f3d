"""What `prime eval` shows: averages and lists of evaluations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from prime_cli.core import output as out
from prime_cli.core.errors import PrimeError
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import EvalSummary

_ERRORS_SHOWN = 3
_WIDE = 110


def print_summary(summary: EvalSummary) -> None:
    """Print the averages, what failed, and where the rollouts are."""
    if out.mode().json:
        out.print_json(summary.as_data())
        return
    print_estimates(summary)
    for text, count in list(summary.errors.items())[:_ERRORS_SHOWN]:
        out.warn(f"{count} of {summary.num_rollouts} rollouts failed and are not in the mean: {escape(text)}")
    if len(summary.errors) > _ERRORS_SHOWN:
        out.warn(f"and {len(summary.errors) - _ERRORS_SHOWN} other kinds of failure; {summary.num_errors} in all")
    if summary.cost is not None:
        out.stdout_console().print(f"cost: {summary.cost:.4g}")
    out.stdout_console().print(f"results: {escape(str(summary.path))}")
    out.note(f"look at them with: prime eval view {escape(str(summary.path))}")


def print_estimates(summary: EvalSummary, *, title: str | None = None) -> None:
    """Print every score with its 95 % interval, and how many rollouts of how many examples it is from."""
    rows: list[tuple[object, ...]] = [
        (name, f"{estimate.mean:.3f}", estimate.interval or "-", estimate.n, estimate.groups)
        for name, estimate in summary.rows().items()
    ]
    if summary.reward is None:
        rows.insert(0, ("reward", "none: every rollout failed", "-", 0, 0))
    out.print_table(["", "mean", "95 % interval", "rollouts", "examples"], rows, title=title)


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
    cells = [_cells(directory, metadata) for directory, metadata in rows]
    if out.mode().plain:
        names = list(cells[0])
    elif out.stdout_console().width < _WIDE:
        names = ["id", "environment", "model", "mean", "rollouts", "when"]
    else:
        names = ["id", "environment", "model", "reward", "rollouts", "date"]
    if "errors" not in names and any(row["errors"] for row in cells):
        names.insert(-1, "errors")
    out.print_table(names, [[row[name] for name in names] for row in cells])
    if out.mode().plain:
        return
    out.note("an id stands for its folder: prime eval view ID, push ID, compare ID ID, run ... --resume ID")


def _cells(directory: EvalDirectory, metadata: dict[str, Any]) -> dict[str, object]:
    reward = metadata.get("avg_reward")
    mean = f"{reward:.3f}" if isinstance(reward, int | float) else "-"
    known = {name: value if isinstance(value, str | int) else json.dumps(value) for name, value in metadata.items()}
    date = str(known.get("date", ""))[:16].replace("T", " ")
    return {
        "id": directory.path.name,
        "environment": known.get("name") or known.get("env_id", "?"),
        "model": known.get("model", "?"),
        "mean": mean,
        "reward": mean if mean == "-" else f"{mean}{_spread(metadata)}",
        "rollouts": known.get("num_rollouts", ""),
        "errors": known.get("num_errors", ""),
        "when": date[5:],
        "date": date,
        "path": str(directory.path),
    }


def _spread(metadata: dict[str, Any]) -> str:
    """Return the interval of the reward; of an evaluation that other tools wrote, its standard error if it has one."""
    estimates = metadata.get("estimates")
    reward = estimates.get("reward") if isinstance(estimates, dict) else None
    interval = reward.get("interval") if isinstance(reward, dict) else None
    if isinstance(interval, list):
        low, high = interval
        return f" [{low:.3f}, {high:.3f}]"
    error = metadata.get("reward_standard_error")
    return f" ± {error:.3f}" if isinstance(error, int | float) else ""
