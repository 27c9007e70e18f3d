"""Evaluations as the browser lists them: what their metadata says, by environment and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.evals.store import EvalDirectory

_Z95 = 1.96
_RUNNING = "…"


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on this machine. `problem`: why its metadata cannot be read, which leaves its rollouts readable."""

    path: Path
    metadata: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def environment(self) -> str:
        """What was measured on."""
        return str(self.metadata.get("env_id") or "?")

    @property
    def model(self) -> str:
        """What was measured."""
        return str(self.metadata.get("model") or "?")

    @property
    def results(self) -> Path:
        """The rollouts, one a line."""
        return EvalDirectory(self.path).results

    @property
    def mean(self) -> float | None:
        """The mean reward."""
        mean = self.metadata.get("avg_reward")
        return float(mean) if isinstance(mean, int | float) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, if the metadata tells it, or the standard error."""
        known = _at(self.metadata, "estimates", "reward", "interval")
        if isinstance(known, list) and len(known) == 2:
            return float(known[0]), float(known[1])
        error = self.metadata.get("reward_standard_error")
        if self.mean is None or not isinstance(error, int | float):
            return None
        return self.mean - _Z95 * error, self.mean + _Z95 * error

    @property
    def mean_text(self) -> str:
        """The mean with half the width of its interval."""
        if self.mean is None:
            return "no reward"
        if self.interval is None:
            return f"{self.mean:.3f}"
        low, high = self.interval
        return f"{self.mean:.3f} ± {(high - low) / 2:.3f}"

    @property
    def count_text(self) -> str:
        """How many rollouts there are, of how many where some are missing, and how many failed."""
        done, total = self.metadata.get("num_rollouts"), self.metadata.get("total_rollouts")
        counted = "?" if done is None else f"{done:,}" if total in (None, done) else f"{done:,}/{total:,}{_RUNNING}"
        failed = self.metadata.get("num_errors")
        return f"n={counted}" + (f" {failed} failed" if failed else "")

    @property
    def logs(self) -> list[Path]:
        """What the environment, its workers and its servers wrote."""
        return sorted([*self.path.glob("*.log"), *self.path.glob("logs/**/*.log")])


def read_evaluation(directory: EvalDirectory) -> Evaluation:
    """Return an evaluation; one whose metadata cannot be read says so."""
    try:
        return Evaluation(directory.path, directory.read_metadata())
    except PrimeError as error:
        return Evaluation(directory.path, problem=error.message)


def by_environment(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, list[Evaluation]]]:
    """Return evaluations by environment and model, in the order in which they come."""
    tree: dict[str, dict[str, list[Evaluation]]] = {}
    for evaluation in evaluations:
        tree.setdefault(evaluation.environment, {}).setdefault(evaluation.model, []).append(evaluation)
    return tree


def settings_of(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings that somebody looks for, in the order of the details."""
    versions = metadata.get("version_info") or {}
    rows: list[tuple[str, Any]] = [
        ("endpoint", metadata.get("base_url")),
        ("examples", metadata.get("num_examples")),
        ("rollouts per example", metadata.get("rollouts_per_example")),
        ("split", metadata.get("split")),
        ("seed", metadata.get("shuffle_seed")),
        *((f"sampling.{name}", value) for name, value in (metadata.get("sampling_args") or {}).items()),
        *((f"env.{name}", value) for name, value in (metadata.get("env_args") or {}).items()),
        ("state columns", ", ".join(metadata.get("state_columns") or [])),
        ("environment version", versions.get("env_version") if isinstance(versions, dict) else None),
        ("date", str(metadata.get("date") or "")[:19].replace("T", " ")),
        ("took", _seconds(metadata.get("time"))),
        *((name.replace("_", " "), _number(value)) for name, value in (metadata.get("usage") or {}).items()),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "", [])]


def histogram(values: Sequence[float], buckets: int = 10) -> list[tuple[str, int]]:
    """Return how many values there are in each bucket: one for each value where there are few, else equal spans."""
    if not values:
        return []
    distinct = sorted(set(values))
    if len(distinct) <= 6:
        return [(f"{value:.3g}", values.count(value)) for value in distinct]
    low, high = distinct[0], distinct[-1]
    width = (high - low) / buckets
    counts = [0] * buckets
    for value in values:
        counts[min(buckets - 1, int((value - low) / width))] += 1
    return [(f"{low + place * width:.2f}-{low + (place + 1) * width:.2f}", count) for place, count in enumerate(counts)]


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _seconds(value: Any) -> str:
    if not isinstance(value, int | float):
        return ""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _number(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else str(value)
