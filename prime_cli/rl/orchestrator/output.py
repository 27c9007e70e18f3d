"""What the orchestrator leaves in the run's folder: batches, their rollouts, and a record per step."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import Any

from prime_cli.rl.orchestrator.gate import StalenessGate
from prime_cli.rl.orchestrator.groups import error_counts, rollout_metrics, stored_rollout
from prime_cli.rl.orchestrator.sink import Cut
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.transport import Batch, write_batch


class RunOutput:
    """Writes to a run directory."""

    def __init__(self, run: RunDirectory, gate: StalenessGate) -> None:
        self._run = run
        self._gate = gate
        self._said = ""

    def ship(self, cut: Cut, state: Mapping[str, Any], metrics: Mapping[str, float | int]) -> None:
        """Write the rollouts of the batch and its record, then the batch itself, with `state` in its folder."""
        self._store_rollouts(cut)
        self._run.append_metrics(cut.step, "orchestrator", batch_metrics(cut, self._gate) | dict(metrics))
        # Last: where a step was trained, what is known of it is on disk, wherever the run was cut off.
        facts = {"origins": _origins(cut)}
        write_batch(Batch(cut.step, cut.samples, facts), self._run.batch(cut.step), orchestrator=state)
        for error, count in error_counts(cut.finished).most_common(3):
            print(f"step {cut.step}: {count} rollouts failed: {error}", flush=True)  # noqa: T201 - this log

    def say(self, doing: str) -> None:
        """Record what the orchestrator does, or waits for, since it began to."""
        if doing != self._said:
            self._said = doing
            self._run.set_status("orchestrator", doing)

    def _store_rollouts(self, cut: Cut) -> None:
        path = self._run.rollouts(cut.step)
        aside = path.with_suffix(".aside")
        with aside.open("w") as file:
            for group in cut.finished:
                for rollout in group.rollouts:
                    file.write(json.dumps(stored_rollout(rollout, group), default=str) + "\n")
        aside.replace(path)


def _origins(cut: Cut) -> list[dict[str, Any]]:
    """Return where each sample of a batch came from."""
    origins: dict[int, dict[str, Any]] = {}
    for group in cut.groups:
        opened = group.opened
        origin = {"environment": opened.source, "group": opened.number, "example": opened.example}
        origins |= dict.fromkeys(map(id, group.samples), origin)
    return [origins[id(sample)] for sample in cut.samples]


def batch_metrics(cut: Cut, gate: StalenessGate) -> dict[str, float | int]:
    """Return the figures of a batch, of all finished rollouts that it accounts for, and by environment if several."""
    values = rollout_metrics(cut.finished, cut.samples)
    staleness = [0 if group.opened.frozen else gate.staleness(group.opened.version, cut.step) for group in cut.groups]
    values |= {
        "off_policy/mean": statistics.fmean(staleness),
        "off_policy/max": max(staleness),
        "off_policy/dropped": cut.stale,
        **{f"off_policy/groups/{age}": staleness.count(age) for age in sorted(set(staleness))},
        "progress/batch_tokens": sum(len(sample.token_ids) for sample in cut.samples),
    }
    for name, reached in cut.reached.items():
        values[f"curriculum/{name}/admission_rate"] = cut.admitted[name] / reached
    values |= {f"filter/{name}": count for name, count in cut.filtered.items()}
    if len(cut.sources) > 1:
        for name in cut.sources:
            values |= _of_environment(name, cut)
    return values


def _of_environment(name: str, cut: Cut) -> dict[str, float | int]:
    groups = [group for group in cut.finished if group.opened.source == name]
    values: dict[str, float | int] = {
        f"batch/{name}": sum(len(group.rollouts) for group in cut.groups if group.opened.source == name)
    }
    if groups:  # where there is none, a mean of 0 would be a lie
        kept = ("reward/mean", "rollouts", "errors", "truncated", "groups/zero_advantage", "completion_tokens/mean")
        of_all = rollout_metrics(groups, [])
        values |= {f"train/{name}/{key}": of_all[key] for key in kept}
    return values
