"""Runs an environment against a model and keeps every rollout."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
from prime_cli.evals.dispatch import dispatch
from prime_cli.evals.examples import Examples, chosen_examples
from prime_cli.evals.permits import Permits
from prime_cli.evals.record import EvalRecord, Observer
from prime_cli.evals.resume import Kept, keep_finished
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import EvalSummary

Row = Mapping[str, Any]
Note = Callable[[str], None]
"""Told in a sentence what a user should know."""


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
    permits: Permits | None = None,
    note: Note = lambda _: None,
) -> EvalSummary:
    """Run what is not in `directory` yet, appending each finished rollout there.

    Args:
        endpoints: replicas of the model, which take turns.
        permits: how many rollouts may run at once, shared with other evaluations; only as the settings say if None.
        python: the interpreter that has the environment, or `verifiers` and finds it on `search_path`.
        note: told of what was found amiss in the results.

    Raises:
        EnvironmentFailed: the environment does not load.
        PrimeError: it has no examples in the split, or the results cannot be written.
    """
    workers = EnvironmentWorkers(
        EnvironmentSpec(settings.environment.name, settings.env_args, attributes=settings.extra_env_kwargs),
        python=python,
        num_workers=settings.num_workers,
        log_directory=directory.path / "logs",
        search_path=search_path,
    )
    try:
        info = await workers.start()
        if settings.independent_scoring and info.needs_group_scoring:
            raise PrimeError(
                f"{settings.environment} scores the rollouts of an example together",
                hint="leave --independent-scoring out",
            )
        examples = chosen_examples(workers, info, settings)
        kept = await _finished(examples, info, settings, directory, note)
        record = EvalRecord(
            settings, directory, info,
            base_url=endpoints[0].base_url, tally=kept.tally,
            total=len(examples) * settings.rollouts_per_example, observe=observe,
        )  # fmt: skip
        with record.kept_up_to_date():
            await _carry_out(examples, kept.rollouts_of, info, settings, workers, endpoints, record, permits)
    finally:
        await workers.close()
    return record.summary()


def plan_work(
    examples: Iterable[Row], rollouts_per_example: int, done: Mapping[Hashable, int], *, as_group: bool
) -> Iterator[Work]:
    """Yield what is left to do, example by example; `done` says how many rollouts of each there are."""
    for example in examples:
        missing = rollouts_per_example - done.get(example["example_id"], 0)
        if as_group and missing:
            yield Work(example, missing, as_group=True)
        elif not as_group:
            yield from (Work(example, 1, as_group=False) for _ in range(missing))


async def _finished(
    examples: Examples, info: EnvironmentInfo, settings: EvalSettings, directory: EvalDirectory, note: Note
) -> Kept:
    """Return what is known of the rollouts that are on disk and stay there."""
    if not directory.results.exists():
        return Kept()
    kept = keep_finished(
        directory, await examples.ids(), settings.rollouts_per_example,
        whole_groups=info.needs_group_scoring, retry_errors=settings.retry_errors,
    )  # fmt: skip
    if kept.num_broken:
        lines = "line that is" if kept.num_broken == 1 else "lines that are"
        note(f"{kept.num_broken} {lines} no rollout went to {directory.broken_lines}")
    return kept


async def _carry_out(
    examples: Examples,
    done: Mapping[Hashable, int],
    info: EnvironmentInfo,
    settings: EvalSettings,
    workers: EnvironmentWorkers,
    endpoints: Sequence[ModelEndpoint],
    record: EvalRecord,
    permits: Permits | None,
) -> None:
    """Run what is missing, so many rollouts at once as the settings say; `done` counts those of each example."""
    turns = itertools.cycle(endpoints)

    async def missing() -> AsyncIterator[Work]:
        async for page in examples.pages():
            for work in plan_work(page, settings.rollouts_per_example, done, as_group=info.needs_group_scoring):
                yield work

    async def carry_out(work: Work) -> None:
        async with permits.taken(work.num_rollouts) if permits is not None else contextlib.nullcontext():
            rollouts = await _run(work, next(turns), settings, workers)
        record.add(rollouts)

    def admit(num_rollouts: int, in_flight: int) -> float:
        return 0.0 if in_flight == 0 or in_flight + num_rollouts <= settings.max_concurrent else math.inf

    await dispatch(missing(), carry_out, admit)


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
