"""Runs a prompt on examples: through the workers, with retries, each call into the journal before it counts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import failed_rollout
from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
)
from prime_cli.evals.cost import PricedEndpoint
from prime_cli.evals.figures import figures_of
from prime_cli.gepa.examples import Example
from prime_cli.gepa.journal import Journal
from prime_cli.gepa.progress import Meter
from prime_cli.gepa.prompts import sha256_of, with_system_prompt

# Not the prompt's fault: the model or what the environment runs on did not answer.
_OUTAGES = frozenset(
    {"ModelError", "InfraError", "SandboxError", "TunnelError", "BrowserSandboxError", "EnvironmentWorkerDied"}
)
_STATUS = "Error code: "
# A key or a name that is wrong is as wrong the next time.
_FINAL_STATUSES = tuple(f"{_STATUS}{code}" for code in (400, 401, 403, 404, 422))
_KEPT = ("completion", "reward", "error", "metrics", "stop_condition", "is_truncated", "token_usage")
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """What came of one rollout: its score, 0 where it failed, and the record that the journal has of it."""

    example: Example
    score: float
    error: str | None
    record: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class LoadedEnvironment:
    """Workers of an environment, and whether its rollouts are scored as a group."""

    workers: EnvironmentWorkers
    as_group: bool


class Rollouts:
    """Runs prompts on examples, `max_concurrent` rollouts at once.

    Args:
        endpoints: replicas of the model, which take turns, with what their tokens cost.
        sleep: waits between retries, which grow from half a second.
    """

    def __init__(
        self,
        environments: Sequence[LoadedEnvironment],
        endpoints: Sequence[PricedEndpoint],
        journal: Journal,
        meter: Meter,
        *,
        sampling_args: Mapping[str, Any],
        state_columns: Sequence[str],
        max_concurrent: int,
        max_retries: int,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._environments = environments
        self._turns = itertools.cycle(endpoints)
        self._journal = journal
        self._meter = meter
        self._sampling_args = sampling_args
        self._state_columns = state_columns
        self._permits = asyncio.Semaphore(max_concurrent)
        self._max_retries = max_retries
        self._sleep = sleep
        self._has_worked = False

    async def evaluate(self, prompt: str, examples: Sequence[Example], *, held_out: bool = False) -> list[Outcome]:
        """Run the prompt once on each example.

        Raises:
            PrimeError: for half of the examples or more the model or the infrastructure gave no answer; these
                rollouts are not kept, so that a resumed run makes them again. Or all of the first prompt failed.
        """
        known = [(example, self._key(prompt, example)) for example in examples]
        calls = [(example, key, self._journal.next_number(key)) for example, key in known]
        work = [asyncio.create_task(self._one(prompt, *call, held_out)) for call in calls]
        try:
            outcomes = await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        outages = [i for i, outcome in enumerate(outcomes) if _is_outage(outcome.record)]
        unkept = [i for i in outages if self._journal.find(*calls[i][1:]) is None]
        if unkept and 2 * len(outages) >= len(outcomes):
            raise PrimeError(
                f"{len(outages)} of {len(outcomes)} rollouts got no answer, retries and all: "
                f"{outcomes[outages[0]].error}"
            )
        if all(outcome.error for outcome in outcomes) and not self._has_worked:
            raise PrimeError(f"every rollout of the initial prompt failed: {outcomes[0].error}")
        self._has_worked = True
        for i in unkept:  # they count as failed, and so they must the next time
            self._journal.add(*calls[i][1:], dict(outcomes[i].record))
        return outcomes

    @staticmethod
    def _key(prompt: str, example: Example) -> tuple[str, ...]:
        return ("rollout", sha256_of(prompt)[:16], example.key)

    async def _one(self, prompt: str, example: Example, key: tuple[str, ...], number: int, held_out: bool) -> Outcome:
        record = self._journal.find(key, number)
        replayed = record is not None
        if record is None:
            async with self._permits:
                self._meter.check_cost()
                record = await self._run(prompt, example)
            if not _is_outage(record):
                self._journal.add(key, number, record)
        figures = figures_of(record)
        self._meter.rollout(record, failed=figures.error is not None, replayed=replayed, compared=held_out)
        return Outcome(example, figures.reward, figures.error, record)

    async def _run(self, prompt: str, example: Example) -> dict[str, Any]:
        environment = self._environments[example.environment]
        row = with_system_prompt(example.row, prompt)
        for attempt in itertools.count():
            output = await self._attempt(environment, row)
            if not _is_outage(output) or attempt >= self._max_retries or _is_final(output):
                break
            await self._sleep(min(_LONGEST_WAIT_S, 0.5 * 2**attempt))
        return {name: output[name] for name in (*_KEPT, "cost", *self._state_columns) if output.get(name) is not None}

    async def _attempt(self, environment: LoadedEnvironment, row: dict[str, Any]) -> dict[str, Any]:
        turn = next(self._turns)
        workers, sampling, columns = environment.workers, self._sampling_args, self._state_columns
        try:
            if environment.as_group:
                (output,) = await workers.run_group([row], turn.endpoint, sampling, state_columns=columns)
            else:
                output = await workers.run_rollout(row, turn.endpoint, sampling, state_columns=columns)
            return output if turn.price is None else {**output, "cost": turn.price.of_rollout(output)}
        except (EnvironmentFailed, EnvironmentWorkerDied) as error:
            return failed_rollout(row, error)


def _is_outage(record: Mapping[str, Any]) -> bool:
    error = record.get("error")
    if not isinstance(error, Mapping):
        return False
    return error.get("error") in _OUTAGES or _STATUS in str(error.get("message"))


def _is_final(record: Mapping[str, Any]) -> bool:
    return any(status in str(record["error"]) for status in _FINAL_STATUSES)
