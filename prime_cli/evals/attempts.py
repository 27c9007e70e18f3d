"""Runs one unit of an evaluation's work, again where that may help, and says what came of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import failed_rollout
from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from prime_cli.evals.cost import PricedEndpoint
from prime_cli.evals.failures import kind_of
from prime_cli.evals.settings import EvalSettings

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_OF_THE_KEY = ("AuthenticationError", "PermissionDeniedError")


@dataclass(frozen=True)
class Work:
    """Rollouts of one example that are run together: the missing ones where they are scored as a group, else one."""

    example: Mapping[str, Any]
    num_rollouts: int
    as_group: bool


@dataclass(frozen=True)
class Finished:
    """The rollouts of a unit of work as they ended at last, and the endpoint that they were sent to.

    `cost` is that of all attempts; None where it cannot be told.
    """

    rollouts: list[dict[str, Any]]
    endpoint: ModelEndpoint
    cost: float | None


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt, the first is number 0, that failed with `error` and is made again after a pause."""

    number: int
    error: Any
    endpoint: ModelEndpoint
    pause_s: float


class Attempts:
    """Runs work on the endpoints, which take turns.

    What failed for a reason that may pass is run again, up to `max_retries` times, after pauses that double and are
    spread at random. A group is run again whole.

    Args:
        retried: is told of each attempt that failed and is made again; what it raises ends the work.
    """

    def __init__(
        self,
        settings: EvalSettings,
        workers: EnvironmentWorkers,
        turns: Iterator[PricedEndpoint],
        retried: Callable[[FailedAttempt], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._turns = turns
        self._retried = retried
        self._sleep = sleep

    async def run(self, work: Work) -> Finished:
        """Run the work until it ended well, or as often as may be."""
        spent: float | None = 0.0
        for attempt in range(self._settings.max_retries + 1):
            turn = next(self._turns)
            rollouts = await self._once(work, turn.endpoint)
            for rollout in rollouts:
                cost = turn.price.of_rollout(rollout) if turn.price is not None else None
                if cost is not None:
                    rollout["cost"] = cost
                spent = None if spent is None or cost is None else spent + cost
            errors = [rollout["error"] for rollout in rollouts if rollout.get("error")]
            passing = next((error for error in errors if kind_of(error).is_worth_a_retry), None)
            if passing is None or attempt == self._settings.max_retries:
                break
            failed = FailedAttempt(attempt, passing, turn.endpoint, pause_before_retry(attempt))
            self._retried(failed)
            await self._sleep(failed.pause_s)
        if spent is not None and (earlier := spent - sum(rollout["cost"] for rollout in rollouts)) > 0:
            rollouts[0]["cost"] += earlier
        if attempt:
            rollouts = [{**rollout, "retries": attempt} for rollout in rollouts]
        return Finished(rollouts, turn.endpoint, spent)

    async def _once(self, work: Work, endpoint: ModelEndpoint) -> list[dict[str, Any]]:
        settings = self._settings
        options: dict[str, Any] = {"state_columns": settings.state_columns, "timeout_s": settings.timeout_s}
        try:
            if work.as_group:
                inputs = [work.example] * work.num_rollouts
                return await self._workers.run_group(inputs, endpoint, settings.sampling_args, **options)
            return [await self._workers.run_rollout(work.example, endpoint, settings.sampling_args, **options)]
        except (EnvironmentFailed, EnvironmentWorkerDied) as error:
            return [_failed_rollout(work.example, error) for _ in range(work.num_rollouts)]


def pause_before_retry(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Return the seconds to wait after attempt number `attempt`, from 0: a half to the whole of 1, 2, 4, ..."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**attempt) * (0.5 + chance() / 2)


def _failed_rollout(example: Mapping[str, Any], error: PrimeError) -> dict[str, Any]:
    """Return a record of a rollout that ended with the environment's own exception, or with its process."""
    names = [type(error).__name__]
    # The library lets these two of the model's client through as they are.
    if isinstance(error, EnvironmentFailed) and error.raised in _OF_THE_KEY:
        names.append(error.raised)
    record = failed_rollout(example, error)
    record["error"] |= {
        "error_chain_repr": error.message,
        "error_chain_str": " -> ".join(names),
        "message": error.message,
    }
    return {**record, "is_completed": False}
