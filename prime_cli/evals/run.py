"""Runs an environment against a model and keeps every rollout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentInfo,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
    Split,
)
from prime_cli.environments.workspace import search_path_of, workspace_python
from prime_cli.evals.statistics import Estimate, clustered_mean, pass_at_k, powers_of_two_up_to
from prime_cli.evals.store import EvalDirectory

PASS_THRESHOLD = 0.5
_METADATA_EVERY_S = 2.0


@dataclass(frozen=True)
class EvalSettings:
    """What is evaluated and how. `max_concurrent` counts rollouts."""

    environment: EnvironmentId
    model: str
    env_args: dict[str, Any] = field(default_factory=dict)
    split: Split = "eval"
    num_examples: int = 5
    rollouts_per_example: int = 3
    max_concurrent: int = 32
    sampling_args: dict[str, Any] = field(default_factory=dict)
    state_columns: tuple[str, ...] = ()
    num_workers: int = 1


@dataclass(frozen=True)
class EvalSummary:
    """What came out. `reward` is over the rollouts without an error, or None when there is none."""

    path: Path
    reward: Estimate | None
    metrics: dict[str, float]
    pass_at_k: dict[str, float]
    num_rollouts: int
    num_errors: int
    errors: dict[str, int]
    seconds: float


Observer = Callable[[Sequence[dict[str, Any]], int], None]
"""Called with all rollouts so far and how many there will be, after each group."""


async def run_evaluation(
    settings: EvalSettings, endpoint: ModelEndpoint, directory: EvalDirectory, observe: Observer
) -> EvalSummary:
    """Run what is not in `directory` yet, appending each finished rollout there.

    Raises:
        EnvironmentFailed: the environment does not load.
        PrimeError: it has no examples in the split.
    """
    started = time.time()
    workers = EnvironmentWorkers(
        EnvironmentSpec(settings.environment.name, settings.env_args),
        python=workspace_python(),
        num_workers=settings.num_workers,
        log_directory=directory.path / "logs",
        search_path=search_path_of(settings.environment.name),
    )
    rollouts = directory.read_rollouts()
    try:
        info = await workers.start()
        examples = await _examples(workers, info, settings)
        total = len(examples) * settings.rollouts_per_example
        writer = _Writer(
            settings, directory, rollouts, info, endpoint.base_url, started, lambda: observe(rollouts, total)
        )
        writer.metadata(force=True)
        await _run_missing(workers, settings, endpoint, examples, rollouts, writer)
    finally:
        await workers.close()
    writer.metadata(force=True)
    return summarize(directory.path, rollouts, time.time() - started)


async def _examples(workers: EnvironmentWorkers, info: EnvironmentInfo, settings: EvalSettings) -> list[dict[str, Any]]:
    available = info.num_eval if settings.split == "eval" else info.num_train
    if available == 0:
        other = "train" if settings.split == "eval" else "eval"
        raise PrimeError(f"{settings.environment} has no {settings.split} examples", hint=f"try `--split {other}`")
    limit = None if settings.num_examples < 0 else settings.num_examples
    return await workers.examples(settings.split, limit=limit)


async def _run_missing(
    workers: EnvironmentWorkers,
    settings: EvalSettings,
    endpoint: ModelEndpoint,
    examples: Sequence[dict[str, Any]],
    rollouts: list[dict[str, Any]],
    writer: _Writer,
) -> None:
    done: dict[Any, int] = {}
    for rollout in rollouts:
        done[rollout["example_id"]] = done.get(rollout["example_id"], 0) + 1
    per_example = settings.rollouts_per_example
    slots = asyncio.Semaphore(max(1, settings.max_concurrent // per_example))

    async def one_example(example: dict[str, Any]) -> None:
        missing = per_example - done.get(example["example_id"], 0)
        if missing <= 0:
            return
        async with slots:
            try:
                outputs = await workers.run_group(
                    [example] * missing, endpoint, settings.sampling_args, state_columns=settings.state_columns
                )
            except (EnvironmentFailed, EnvironmentWorkerDied) as error:
                outputs = [_failed_rollout(example, error)] * missing
        writer.add(outputs)

    async with asyncio.TaskGroup() as group:
        for example in examples:
            group.create_task(one_example(example))


def _failed_rollout(example: dict[str, Any], error: PrimeError) -> dict[str, Any]:
    """Return a record of rollouts that ended with the environment's own exception, or with its process."""
    body = {"error": type(error).__name__, "error_chain_repr": error.message, "error_chain_str": error.message}
    kept: dict[str, Any] = {key: example[key] for key in ("example_id", "prompt", "answer", "info") if key in example}
    return {**kept, "completion": [], "reward": 0.0, "error": body, "metrics": {}, "is_completed": False}


class _Writer:
    """Keeps results and metadata on disk in step with what was shown."""

    def __init__(
        self,
        settings: EvalSettings,
        directory: EvalDirectory,
        rollouts: list[dict[str, Any]],
        info: EnvironmentInfo,
        base_url: str,
        started: float,
        observe: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._base_url = base_url
        self._directory = directory
        self._rollouts = rollouts
        self._info = info
        self._started = started
        self._observe = observe
        self._written = 0.0

    def add(self, outputs: Sequence[dict[str, Any]]) -> None:
        """Store finished rollouts, then count and show them."""
        for output in outputs:
            self._directory.append(output)
            self._rollouts.append(output)
        self.metadata()
        self._observe()

    def metadata(self, *, force: bool = False) -> None:
        """Bring metadata.json up to date, at most every few seconds unless forced."""
        now = time.time()
        if not force and now - self._written < _METADATA_EVERY_S:
            return
        self._written = now
        settings, summary = self._settings, summarize(self._directory.path, self._rollouts, now - self._started)
        self._directory.write_metadata(
            {
                "env_id": str(settings.environment),
                "env_args": settings.env_args,
                "model": settings.model,
                "base_url": self._base_url,
                "num_examples": settings.num_examples,
                "rollouts_per_example": settings.rollouts_per_example,
                "sampling_args": settings.sampling_args,
                "date": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._started)),
                "time": summary.seconds,
                "avg_reward": summary.reward.mean if summary.reward else None,
                "reward_standard_error": summary.reward.standard_error if summary.reward else None,
                "avg_metrics": summary.metrics,
                "avg_error": summary.num_errors / summary.num_rollouts if summary.num_rollouts else 0.0,
                "num_rollouts": summary.num_rollouts,
                "num_errors": summary.num_errors,
                "pass_at_k": summary.pass_at_k,
                "pass_threshold": PASS_THRESHOLD,
                "split": settings.split,
                "version_info": {"vf_version": self._info.verifiers_version, "env_version": self._info.version},
                "state_columns": list(settings.state_columns),
                "max_concurrent": settings.max_concurrent,
                "num_workers": settings.num_workers,
            }
        )


def summarize(path: Path, rollouts: Sequence[dict[str, Any]], seconds: float) -> EvalSummary:
    """Return the figures of the rollouts; those with an error are counted, and neither scored nor averaged."""
    clean = [rollout for rollout in rollouts if not rollout.get("error")]
    rewards = [float(rollout["reward"]) for rollout in clean]
    examples = [rollout["example_id"] for rollout in clean]
    names = sorted({name for rollout in clean for name in (rollout.get("metrics") or {})})
    metrics = {}
    for name in names:
        values = [float(r["metrics"][name]) for r in clean if (r.get("metrics") or {}).get(name) is not None]
        if values:
            metrics[name] = sum(values) / len(values)
    errors: dict[str, int] = {}
    for rollout in rollouts:
        if rollout.get("error"):
            text = error_text(rollout["error"])
            errors[text] = errors.get(text, 0) + 1
    return EvalSummary(
        path=path,
        reward=clustered_mean(rewards, examples),
        metrics=metrics,
        pass_at_k=_pass_at_k(rewards, examples),
        num_rollouts=len(rollouts),
        num_errors=len(rollouts) - len(clean),
        errors=dict(sorted(errors.items(), key=lambda item: -item[1])),
        seconds=seconds,
    )


def error_text(error: Any) -> str:
    """Say in one line what went wrong in a rollout."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error_chain_str") or error.get("error") or error
    return next(iter(str(error).splitlines()), "")


def _pass_at_k(rewards: Sequence[float], examples: Sequence[Any]) -> dict[str, float]:
    total: dict[Any, int] = {}
    correct: dict[Any, int] = {}
    for reward, example in zip(rewards, examples, strict=True):
        total[example] = total.get(example, 0) + 1
        correct[example] = correct.get(example, 0) + (reward >= PASS_THRESHOLD)
    most = max(total.values(), default=0)
    if most < 2:
        return {}
    values = {}
    for k in powers_of_two_up_to(most):
        value = pass_at_k([correct[e] for e in total], list(total.values()), k)
        if value is not None:
            values[str(k)] = value
    return values
