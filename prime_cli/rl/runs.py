"""Runs on this machine, as somebody looks at them afterwards: what there is, how each went, its rollouts."""

from __future__ import annotations

import difflib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.files import directory_written_aside
from prime_cli.rl.alarms import Alarm, alarms_of
from prime_cli.rl.hold import is_held
from prime_cli.rl.run_directory import RunDirectory, read_metrics

RUNS = Path("outputs/rl")
# A run without a lock whose processes said nothing for this long and that has no summary was cut off.
_SILENT_S = 120


@dataclass(frozen=True)
class RunFacts:
    """One run in a line. `state`: finished, running, or stopped (no summary, and nobody works on it)."""

    path: Path
    state: str
    model: str
    environment: str
    steps: int
    max_steps: int
    first_reward: float | None
    last_reward: float | None
    started: float
    exported_steps: list[int]
    checkpoints: list[int]


def find_runs(parent: Path = RUNS) -> list[RunFacts]:
    """Return the runs below a folder, newest first."""
    if not parent.is_dir():
        return []
    runs = [facts_of(RunDirectory(path)) for path in parent.iterdir() if _is_run(path)]
    return sorted(runs, key=lambda run: run.started, reverse=True)


def open_run(wanted: str, parent: Path = RUNS) -> RunDirectory:
    """Return a run by its folder, or by its name under `parent`.

    Raises:
        BadInput: there is none; names the nearest.
    """
    for path in (Path(wanted), parent / wanted):
        if _is_run(path):
            return RunDirectory(path)
    names = [run.path.name for run in find_runs(parent)]
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`prime rl list` shows those there are"
    raise BadInput(f"{wanted!r} is not a run", hint=hint)


def facts_of(run: RunDirectory) -> RunFacts:
    """Return what a line about a run says.

    Raises:
        PrimeError: its configuration cannot be read.
    """
    config = read_run_config(run)
    records, _ = read_metrics(run.metrics)
    rewards = [float(record["reward/mean"]) for record in records if record.get("source") == "orchestrator"]
    trained = [int(record["step"]) for record in records if record.get("source") == "trainer"]
    environments = [str(entry.get("id", "?")) for entry in config.get("env") or []]
    return RunFacts(
        path=run.path,
        state=_state_of(run),
        model=Path(str(config.get("model", "?"))).name,
        environment=", ".join(environments) or "?",
        steps=max(trained, default=0),
        max_steps=int(config.get("max_steps") or 0),
        first_reward=rewards[0] if rewards else None,
        last_reward=rewards[-1] if rewards else None,
        started=run.config.stat().st_mtime,
        exported_steps=run.exported_steps(),
        checkpoints=run.checkpoint_steps(),
    )


def read_run_config(run: RunDirectory) -> dict[str, Any]:
    """Return the resolved configuration of a run.

    Raises:
        PrimeError: it cannot be read.
    """
    try:
        config = json.loads(run.config.read_text())
    except (OSError, ValueError) as error:
        raise PrimeError(f"the configuration {run.config} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise PrimeError(f"the configuration {run.config} is not an object")
    return config


def metrics_by_step(
    run: RunDirectory, *, first: int | None = None, last: int | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return one record per step with the figures of all processes, by step; with `limit` only the last ones.

    Raises:
        PrimeError: no step is finished yet.
    """
    records, _ = read_metrics(run.metrics)
    steps: dict[int, dict[str, Any]] = {}
    for record in records:
        number = int(record["step"])
        figures = {key: value for key, value in record.items() if key not in ("source", "time")}
        steps.setdefault(number, {}).update(figures)
    if not steps:
        raise PrimeError(f"{run.path} has no finished step yet")
    chosen = [steps[n] for n in sorted(steps) if (first is None or n >= first) and (last is None or n <= last)]
    return chosen if limit is None else chosen[-limit:]


def alarms_in(run: RunDirectory) -> list[Alarm]:
    """Return what the figures of a run say is wrong with it, as of its last step; none before the first one."""
    return alarms_of(metrics_by_step(run)) if run.metrics.is_file() else []


def rollouts_of(run: RunDirectory, step: int, *, offset: int = 0, limit: int = 100) -> list[dict[str, Any]]:
    """Return rollouts of a step, as they were stored; only the lines that are asked for are parsed.

    Raises:
        BadInput: the step has none; names those that have.
    """
    path = run.rollouts(step)
    if not path.is_file():
        there = stored_steps(run)
        hint = f"rollouts are kept of the steps {_spans(there)}" if there else "no step is finished yet"
        raise BadInput(f"{run.path.name} has no rollouts of step {step}", hint=hint)
    with path.open() as file:
        return [json.loads(line) for line in islice(file, offset, offset + limit)]


def stored_steps(run: RunDirectory) -> list[int]:
    """Return the steps whose rollouts are there, ascending."""
    folder = run.path / "rollouts"
    names = (path.stem.removeprefix("step_") for path in folder.glob("step_*.jsonl"))
    return sorted(int(name) for name in names if name.isdigit())


def export_weights(run: RunDirectory, target: Path, *, step: int | None = None) -> tuple[Path, int]:
    """Copy the weights of a step, the last exported one when none is named, into a new folder of their own.

    Returns:
        The folder, which appears whole or not at all, and the step.

    Raises:
        BadInput: the step was not exported, or the target is there already.
    """
    exported = run.exported_steps()
    if not exported:
        hint = "set [checkpoints] interval to keep weights during a run"
        raise BadInput(f"{run.path.name} has no exported weights yet", hint=hint)
    chosen = exported[-1] if step is None else step
    if chosen not in exported:
        raise BadInput(
            f"{run.path.name} has no weights of step {chosen}", hint=f"there are those of {_spans(exported)}"
        )
    if target.exists():
        raise BadInput(f"{target} is there already", hint="name a new folder with --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    with directory_written_aside(target) as aside:
        shutil.copytree(run.weights(chosen), aside, dirs_exist_ok=True)
    return target, chosen


def _state_of(run: RunDirectory) -> str:
    if run.summary.exists():
        return "finished"
    held = is_held(run)
    if held is None:
        held = time.time() - max(_signs_of_life(run), default=0.0) < _SILENT_S
    return "running" if held else "stopped"


def _signs_of_life(run: RunDirectory) -> Iterator[float]:
    """Yield when something of a run was last written."""
    paths: Sequence[Path] = [run.metrics, *(run.path / "status").glob("*"), *(run.path / "logs").glob("*.log")]
    for path in paths:
        if path.exists():
            yield path.stat().st_mtime


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / "rollouts").is_dir()


def _spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, neighbours together: `1-4, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
