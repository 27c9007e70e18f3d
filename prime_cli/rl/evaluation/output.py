"""What evaluations leave in the folder of a run: their rollouts, and a record of their figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prime_cli.rl.run_directory import RunDirectory, read_metrics

SOURCE = "eval"
"""The source of the records of evaluations in metrics.jsonl."""


class EvalOutput:
    """Writes to a run directory."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def begin(self, name: str, step: int) -> None:
        """Make way for the rollouts of this step; what an evaluation that was cut off has left is removed."""
        path = self._run.eval_rollouts(name, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def keep(self, name: str, step: int, rollouts: Sequence[Mapping[str, Any]]) -> None:
        """Append rollouts, one JSON object a line."""
        with self._run.eval_rollouts(name, step).open("a") as file:
            file.writelines(json.dumps(rollout, default=str) + "\n" for rollout in rollouts)

    def record(self, name: str, step: int, figures: Mapping[str, float | int]) -> None:
        """Append the figures to the metrics, each under the name of its set, and say so in this process's log."""
        self._run.append_metrics(step, SOURCE, {f"{name}/{key}": value for key, value in figures.items()})
        reward = figures.get("reward/mean")
        print(  # noqa: T201 - the log of this process
            f"evaluated {name} at step {step}, policy {figures['policy_version/start']} to "
            f"{figures['policy_version/end']}, in {figures['time']:.1f} s: "
            + (f"reward {reward:.4f}" if reward is not None else "no rollout without an error"),
            flush=True,
        )


def evaluated_steps(run: RunDirectory) -> dict[str, list[int]]:
    """Return for each set, by its name, the steps at which it was evaluated."""
    steps: dict[str, list[int]] = {}
    for record in read_metrics(run.metrics)[0]:
        if record.get("source") == SOURCE:
            for name in {set_of(key) for key in record} - {None}:
                steps.setdefault(str(name), []).append(int(record["step"]))
    return steps


def eval_rewards(run: RunDirectory) -> dict[str, list[tuple[int, float]]]:
    """Return for each set, by its name, the steps at which it was evaluated and the mean reward then."""
    rewards: dict[str, list[tuple[int, float]]] = {}
    for record in read_metrics(run.metrics)[0]:
        for key, value in record.items():
            name = set_of(key)
            if name is not None and key == f"{name}/reward/mean":
                rewards.setdefault(name, []).append((int(record["step"]), float(value)))
    return rewards


def eval_intervals(run: RunDirectory) -> dict[str, list[tuple[int, float, float]]]:
    """Return for each set, by its name, the steps at which it was evaluated and the interval of the reward then."""
    intervals: dict[str, list[tuple[int, float, float]]] = {}
    for record in read_metrics(run.metrics)[0]:
        for name in {set_of(key) for key in record} - {None}:
            low, high = record.get(f"{name}/reward/low"), record.get(f"{name}/reward/high")
            if name is not None and low is not None and high is not None:
                intervals.setdefault(name, []).append((int(record["step"]), float(low), float(high)))
    return intervals


def eval_line(record: Mapping[str, Any]) -> str:
    """Return the record of an evaluation as a line of log."""
    name = next((name for key in record if (name := set_of(key))), "evaluation")
    reward, error = record.get(f"{name}/reward/mean"), record.get(f"{name}/reward/standard_error")
    low, high = record.get(f"{name}/reward/low"), record.get(f"{name}/reward/high")
    text = "no rollout without an error" if reward is None else f"reward {reward:.3f}"
    spread = "" if error is None else f" \u00b1 {error:.3f}"
    if low is not None and high is not None:
        spread = f" [{low:.3f}, {high:.3f}]"
    errors = f", {record[f'{name}/errors']} errors" if record.get(f"{name}/errors") else ""
    return f"{name} at step {record['step']}: {text}{spread} of {record.get(f'{name}/rollouts', 0)} rollouts{errors}"


def set_of(key: str) -> str | None:
    """Return the name of the set that a figure is of, or None: `eval/ENVIRONMENT` of `eval/ENVIRONMENT/reward/mean`."""
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] in ("eval", "val") and len(parts) > 2 else None
