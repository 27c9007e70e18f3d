"""A training run as its files say it stands; each look reads on where the last one ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.rl.alarms import Alarm, alarms_of
from prime_cli.rl.display import StepRecords, statuses
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.runs import RunFacts, facts_of, stored_steps

_FIRST = (
    "reward/mean", "loss/mean", "off_policy/mean", "mismatch_kl/mean", "entropy/mean", "samples", "errors",
    "groups/zero_advantage", "perf/throughput", "optim/grad_norm", "completion_tokens/mean", "truncated", "time/step",
)  # fmt: skip
_STEP = re.compile(r"step_(\d+)$")


@dataclass(frozen=True)
class RolloutFile:
    """The rollouts of one batch or one evaluation, with what the metrics say of them."""

    path: Path
    name: str
    count: str
    reward: str
    errors: str


@dataclass(frozen=True)
class RunView:
    """One look at a run. `names`: every figure, those that matter most first; `files`: the newest first."""

    facts: RunFacts
    steps: list[dict[str, Any]]
    latest: dict[str, Any]
    names: list[str]
    alarms: list[Alarm]
    doing: list[tuple[str, str, float]]
    files: list[RolloutFile]
    logs: list[Path]
    num_records: int


class RunWatch:
    """Looks at one run, again and again."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._records = StepRecords()

    def look(self) -> RunView:
        """Return how the run stands now.

        Raises:
            PrimeError: its configuration cannot be read.
        """
        self._records.update(self._run)
        steps, latest = self._records.in_order(), self._records.latest()
        known = [
            name for name, value in latest.items() if isinstance(value, int | float) and name not in ("step", "time")
        ]
        names = [name for name in _FIRST if name in known]
        names += sorted(name for name in known if name not in names)
        return RunView(
            facts=facts_of(self._run),
            steps=steps,
            latest=latest,
            names=names,
            alarms=alarms_of(steps),
            doing=statuses(self._run),
            files=list(self._files({step["step"]: step for step in steps})),
            logs=self.logs(),
            num_records=self._records.num_records,
        )

    def logs(self) -> list[Path]:
        """Return the logs of all processes, those of earlier attempts behind them."""
        folder = self._run.path / "logs"
        return [*sorted(folder.glob("*.log")), *sorted(folder.glob("*/**/*.log"))]

    def _files(self, steps: dict[int, dict[str, Any]]) -> Iterator[RolloutFile]:
        for number in reversed(stored_steps(self._run)):
            yield _file(self._run.rollouts(number), f"step {number}", steps.get(number, {}), "")
        for path in sorted((self._run.path / "rollouts").glob("*/step_*/*.jsonl"), key=_step_of, reverse=True):
            name = f"{path.parts[-3]}/{path.stem}"
            yield _file(path, f"{name} at step {_step_of(path)}", steps.get(_step_of(path), {}), f"{name}/")


def _file(path: Path, name: str, figures: dict[str, Any], prefix: str) -> RolloutFile:
    reward, count, errors = (figures.get(f"{prefix}{key}") for key in ("reward/mean", "rollouts", "errors"))
    return RolloutFile(
        path, name, "" if count is None else str(count), "" if reward is None else f"{reward:.3f}",
        str(errors) if errors else "",
    )  # fmt: skip


def _step_of(path: Path) -> int:
    match = _STEP.search(path.parent.name)
    return int(match.group(1)) if match else 0
