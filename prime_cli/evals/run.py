"""Runs an environment against a model and keeps every rollout."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentInfo,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from prime_cli.evals.figures import RolloutFigures
from prime_cli.evals.record import EvalRecord, Observer
from prime_cli.evals.resume import keep_finished
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import EvalSummary

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """Rollouts of one example that are run together: the missing ones where they are scored as a group, else one."""

    example: Row
    num_rollouts: int
    as_group: bool


async def run_evaluation(
    settings: EvalSettings,
    endpoints: Sequence[ModelEndpoint],
    directory: EvalDirectory,
    observe: Observer,
    *,
    python: Path,
    search_path: Sequence[Path] = (),
) -> EvalSummary:
    """Run what is not in `directory` yet, appending each finished rollout there.

    Args:
        endpoints: replicas of the model, which take turns.
        python: the interpreter that has the environment, or `verifiers` and finds it on `search_path`.

    Raises:
        EnvironmentFailed: the environment does not load.
        PrimeError: it has no examples in the split, or the results cannot be written.
    """
    workers = EnvironmentWorkers(
        EnvironmentSpec(settings.environment.name, settings.env_args),
        python=python,
        num_workers=settings.num_workers,
        log_directory=directory.path / "logs",
        search_path=search_path,
    )
    try:
        info = await workers.start()
        examples = await _examples(workers, info, settings)
        per_example = settings.rollouts_per_example
        finished = keep_finished(directory, examples, per_example, whole_groups=info.needs_group_scoring)
        record = EvalRecord(
            settings, directory, info,
            base_url=endpoints[0].base_url, finished=finished, total=len(examples) * per_example, observe=observe,
        )  # fmt: skip
        missing = plan_work(examples, per_example, finished, as_group=info.needs_group_scoring)
        at_once = per_example if info.needs_group_scoring else 1
        try:
            await _carry_out(missing, max(1, settings.max_concurrent // at_once), settings, workers, endpoints, record)
        finally:
            record.write_metadata()
    finally:
        await workers.close()
    return record.summary()


def plan_work(
    examples: Sequence[Row], rollouts_per_example: int, finished: Sequence[RolloutFigures], *, as_group: bool
) -> Iterator[Work]:
    """Yield what is left to do, example by example."""
    done = Counter[Hashable](figures.example_id for figures in finished)
    for example in examples:
        missing = rollouts_per_example - done[example["example_id"]]
        if as_group and missing:
            yield Work(example, missing, as_group=True)
        elif not as_group:
            yield from (Work(example, 1, as_group=False) for _ in range(missing))


async def _examples(workers: EnvironmentWorkers, info: EnvironmentInfo, settings: EvalSettings) -> list[dict[str, Any]]:
    available = info.num_eval if settings.split == "eval" else info.num_train
    if available == 0:
        other = "train" if settings.split == "eval" else "eval"
        raise PrimeError(f"{settings.environment} has no {settings.split} examples", hint=f"try `--split {other}`")
    count = available if settings.num_examples < 0 else min(available, settings.num_examples)
    if settings.seed is None:
        return await workers.examples(settings.split, limit=count)
    return random.Random(settings.seed).sample(await workers.examples(settings.split), count)  # noqa: S311 - no secret


async def _carry_out(
    missing: Iterator[Work],
    num_runners: int,
    settings: EvalSettings,
    workers: EnvironmentWorkers,
    endpoints: Sequence[ModelEndpoint],
    record: EvalRecord,
) -> None:
    """Let `num_runners` take from the work that is missing until none is left."""
    turns = itertools.cycle(endpoints)

    async def take_and_run() -> None:
        for work in missing:
            record.add(await _run(work, next(turns), settings, workers))

    runners = [asyncio.create_task(take_and_run()) for _ in range(num_runners)]
    try:
        await asyncio.gather(*runners)
    finally:
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)


async def _run(
    work: Work, endpoint: ModelEndpoint, settings: EvalSettings, workers: EnvironmentWorkers
) -> list[dict[str, Any]]:
    try:
        if work.as_group:
            inputs = [work.example] * work.num_rollouts
            return await workers.run_group(
                inputs, endpoint, settings.sampling_args, state_columns=settings.state_columns
            )
        return [
            await workers.run_rollout(
                work.example, endpoint, settings.sampling_args, state_columns=settings.state_columns
            )
        ]
    except (EnvironmentFailed, EnvironmentWorkerDied) as error:
        return [_failed_rollout(work.example, error)] * work.num_rollouts


def _failed_rollout(example: Row, error: PrimeError) -> dict[str, Any]:
    """Return a record of a rollout that ended with the environment's own exception, or with its process."""
    body = {
        "error": type(error).__name__,
        "error_chain_repr": error.message,
        "error_chain_str": type(error).__name__,
        "message": error.message,
    }
    kept: dict[str, Any] = {key: example[key] for key in ("example_id", "prompt", "answer", "info") if key in example}
    return {**kept, "completion": [], "reward": 0.0, "error": body, "metrics": {}, "is_completed": False}
