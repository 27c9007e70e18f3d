"""Runs an environment against a model and keeps every rollout."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.environments.runtime import EnvironmentInfo, EnvironmentSpec, EnvironmentWorkers, ModelEndpoint
from prime_cli.evals.attempts import Attempts, FailedAttempt, Work
from prime_cli.evals.cost import Meter, PricedEndpoint, TokenPrice, estimate_in_words
from prime_cli.evals.dispatch import dispatch
from prime_cli.evals.examples import Examples, chosen_examples
from prime_cli.evals.failures import FailureKind, kind_of
from prime_cli.evals.outage import EndpointFailed, OutageWatch
from prime_cli.evals.pace import Pace
from prime_cli.evals.permits import Permits
from prime_cli.evals.record import EvalRecord, Observer
from prime_cli.evals.resume import Kept, keep_finished
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory
from prime_cli.evals.summary import EvalSummary

RATE_LIMIT_PATIENCE_S = 600.0
"""For how long a request is sent again when a server says that there are too many."""
_ESTIMATED_BY = 32  # examples
_LOAD_TIMEOUT_S = 900.0  # an environment may download its data first
Row = Mapping[str, Any]
Note = Callable[[str], None]
"""Told in a sentence what a user should know."""


async def run_evaluation(
    settings: EvalSettings,
    endpoints: Sequence[PricedEndpoint],
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
        endpoints: replicas of the model, which take turns, and what their tokens cost where that is known.
        permits: how many rollouts may run at once, shared with other evaluations; only as the settings say if None.
        python: the interpreter that has the environment, or `verifiers` and finds it on `search_path`.
        note: told of what was found amiss in the results.

    Raises:
        EnvironmentFailed: the environment does not load.
        BadInput: a cost is not to be passed, and no price is known.
        EndpointFailed: the model's server never answered; nothing is kept.
        PrimeError: it has no examples in the split, the results cannot be written, or the model's server fails
            everything from some moment on.
    """
    _check_prices(settings, endpoints)
    pace = Pace(settings.max_concurrent)
    record: EvalRecord | None = None

    def refused(delay_s: float) -> None:
        pace.refused(delay_s)
        if record is not None:
            record.show()

    workers = EnvironmentWorkers(
        EnvironmentSpec(settings.environment.name, settings.env_args, attributes=settings.extra_env_kwargs),
        python=python,
        num_workers=settings.num_workers,
        log_directory=directory.path / "logs",
        search_path=search_path,
        refused=refused,
    )
    held = directory.hold()
    turns = itertools.cycle([one.with_patience(RATE_LIMIT_PATIENCE_S) for one in endpoints])
    try:
        info = await workers.start(_LOAD_TIMEOUT_S)
        _check_scoring(settings, info)
        examples = await chosen_examples(workers, settings)
        kept = await _finished(examples, info, settings, directory, note)
        record = EvalRecord(
            settings, directory, info,
            base_url=endpoints[0].endpoint.base_url, tally=kept.tally,
            total=len(examples) * settings.rollouts_per_example, observe=observe,
        )  # fmt: skip
        if endpoints[0].price is not None and record.num_missing:
            note(await _estimate(examples, endpoints[0].price, record.num_missing, settings))
        running = _Running(settings, workers, turns, record, pace, permits)
        try:
            with record.kept_up_to_date():
                await running.run(missing_work(examples, settings, kept.rollouts_of, info.needs_group_scoring))
        except EndpointFailed as error:
            if not error.had_answered:
                directory.forget_results()
                raise
            raise PrimeError(error.message, f"{error.hint}; {_how_to_go_on(directory)} --retry-errors") from None
    finally:
        await workers.close()
        os.close(held)
    return record.summary()


def _check_prices(settings: EvalSettings, endpoints: Sequence[PricedEndpoint]) -> None:
    if settings.max_cost is not None and not all(one.price for one in endpoints):
        raise BadInput(
            f"what {settings.model} costs is not known, so --max-cost cannot be kept",
            hint="say it in its entry of endpoints.toml: price = { input = 0.15, output = 0.6 } for a million tokens",
        )


def _check_scoring(settings: EvalSettings, info: EnvironmentInfo) -> None:
    if settings.independent_scoring and info.needs_group_scoring:
        raise PrimeError(
            f"{settings.environment} scores the rollouts of an example together",
            hint="leave --independent-scoring out",
        )


async def _estimate(examples: Examples, price: TokenPrice, num_rollouts: int, settings: EvalSettings) -> str:
    prompts = [example.get("prompt") for example in await examples.first(_ESTIMATED_BY)]
    return estimate_in_words(price, prompts, num_rollouts, settings.sampling_args.get("max_tokens"))


class _Running:
    """Runs work as fast as the settings, the server and the money allow, and sees to what comes of it."""

    def __init__(
        self,
        settings: EvalSettings,
        workers: EnvironmentWorkers,
        turns: Iterator[PricedEndpoint],
        record: EvalRecord,
        pace: Pace,
        permits: Permits | None,
    ) -> None:
        self._permits = permits
        self._settings = settings
        self._attempts = Attempts(settings, workers, turns, self._retried)
        self._record = record
        self._pace = pace
        self._meter = Meter(record.cost, record.num_priced, most=settings.max_cost)
        self._outage = OutageWatch(record.num_missing, had_answered=record.num_done > 0)
        record.show_also(pace=pace, meter=self._meter)

    async def run(self, work: AsyncIterator[Work]) -> None:
        """Run all of it, or as much as the money is enough for.

        Raises:
            EndpointFailed: the server fails everything alike.
        """
        if not await dispatch(work, self._carry_out, self._admit):
            self._record.stopped = (
                f"the most that it may cost is reached: {self._meter.spent:.4g} of {self._settings.max_cost:.4g} spent"
            )

    async def _carry_out(self, work: Work) -> None:
        permits = self._permits
        async with permits.taken(work.num_rollouts) if permits is not None else contextlib.nullcontext():
            finished = await self._attempts.run(work)
        self._pace.ended(work.num_rollouts)
        if finished.cost is not None:
            self._meter.add(finished.cost, work.num_rollouts)
        self._record.add(finished.rollouts)
        if finished.cost is None and self._settings.max_cost is not None:
            raise PrimeError(
                f"{finished.endpoint.base_url} does not count tokens, so nobody knows what is spent",
                hint="leave --max-cost out",
            )
        for rollout in finished.rollouts:
            self._check(rollout.get("error"), finished.endpoint)

    def _retried(self, failed: FailedAttempt) -> None:
        if kind_of(failed.error) is FailureKind.RATE_LIMITED:
            self._pace.refused(failed.pause_s)
        self._record.retried()
        # Where nothing was ever answered, one retry says enough.
        if failed.number and not self._outage.had_answered:
            self._check(failed.error, failed.endpoint)

    def _check(self, error: Any, endpoint: ModelEndpoint) -> None:
        if failure := self._outage.finished(error, endpoint):
            raise failure

    def _admit(self, num_rollouts: int, in_flight: int) -> float | None:
        affordable = self._meter.delay(num_rollouts, in_flight)
        return None if affordable is None else max(affordable, self._pace.delay(num_rollouts, in_flight))


async def missing_work(
    examples: Examples, settings: EvalSettings, done: Mapping[Hashable, int], as_group: bool
) -> AsyncIterator[Work]:
    """Yield what is left to do; `done` says how many rollouts of each example there are."""
    async for page in examples.pages():
        for work in plan_work(page, settings.rollouts_per_example, done, as_group=as_group):
            yield work


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


def _how_to_go_on(directory: EvalDirectory) -> str:
    return f"to go on: the same command with --resume {directory.path}"
