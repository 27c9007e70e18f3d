"""Makes sets to evaluate of environments: which examples, and how a rollout of one is run in a worker."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import failed_rollout
from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentInfo,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from prime_cli.environments.target import locate_target
from prime_cli.rl.environment_config import EnvironmentConfig
from prime_cli.rl.eval_config import EvalConfig, EvalEnvironmentConfig, EvalSamplingConfig, HeldOutConfig
from prime_cli.rl.evaluation.evaluator import EvalSet, Rollouts, Row


@dataclass(frozen=True)
class LoadedEnvironment:
    """An environment in workers that have loaded it."""

    workers: EnvironmentWorkers
    about: EnvironmentInfo


def workers_of(
    environment: EnvironmentConfig,
    *,
    name: str,
    logs: Path,
    num_workers: int,
    silence_timeout_s: float,
    variables: Mapping[str, str] = {},
) -> EnvironmentWorkers:
    """Return workers for an environment, not started yet; `name` is how they are called in logs."""
    target = locate_target(environment.reference)
    return EnvironmentWorkers(
        EnvironmentSpec(target.identity.name, environment.args, name, dict(variables), environment.limits),
        python=target.python,
        num_workers=num_workers,
        log_directory=logs,
        search_path=target.search_path,
        silence_timeout_s=silence_timeout_s,
    )


@dataclass(frozen=True)
class Sampler:
    """Which model samples, and from what its seeds are derived.

    The same rollout of the same example has the same seed in every evaluation, so that two of them differ by the policy
    and not by chance.
    """

    endpoint: ModelEndpoint
    common: EvalSamplingConfig
    seed: int

    def seed_of(self, name: str, example: Row, number: int, attempt: int = 0) -> int:
        """Return the seed of a rollout."""
        text = f"{self.seed}/{name}/{example.get('example_id')}/{number}/{attempt}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


async def eval_set(
    config: EvalConfig, environment: EvalEnvironmentConfig, loaded: LoadedEnvironment, sampler: Sampler
) -> EvalSet:
    """Return the evaluation examples of an environment as a set.

    Raises:
        PrimeError: there are none.
    """
    wanted = config.num_examples if environment.num_examples is None else environment.num_examples
    rows = await loaded.workers.examples("eval", limit=None if wanted < 0 else wanted)
    if not rows:
        raise PrimeError(
            f"{environment.label} has no evaluation examples",
            hint="leave it out of [[eval.env]], or hold out training examples with [val]",
        )
    sampling = (environment.sampling or EvalSamplingConfig()).over(config.sampling)
    return _set(
        f"eval/{environment.label}",
        rows,
        environment,
        loaded,
        sampler,
        sampling.over(sampler.common),
        rollouts_per_example=environment.rollouts_per_example or config.rollouts_per_example,
        interval=environment.interval or config.interval,
        skip_first_step=config.skip_first_step,
    )


def held_out_set(
    config: HeldOutConfig,
    environment: EnvironmentConfig,
    rows: Sequence[Row],
    loaded: LoadedEnvironment,
    sampler: Sampler,
) -> EvalSet:
    """Return the training examples `rows`, which are held out, as a set."""
    return _set(
        f"val/{environment.label}",
        rows,
        environment,
        loaded,
        sampler,
        sampler.common,
        rollouts_per_example=config.rollouts_per_example,
        interval=config.interval,
    )


def hold_out(rows: Sequence[Row], count: int, *, seed: int, name: str) -> tuple[list[Row], list[Row]]:
    """Divide training examples: those to train on, and `count` that are not, chosen under the seed.

    Copies of an example that is held out are not trained on either.

    Raises:
        PrimeError: nothing is left to train on.
    """
    chosen = sorted(random.Random(f"{seed}/held out").sample(range(len(rows)), min(count, len(rows))))  # noqa: S311
    held_out = [rows[index] for index in chosen]
    known = {_content(row) for row in held_out}
    training = [row for row in rows if _content(row) not in known]
    if not training:
        raise PrimeError(
            f"{name} has {len(rows)} training examples, and none is left after {count} are held out",
            hint="lower val.num_examples",
        )
    return training, held_out


def _content(row: Row) -> str:
    return json.dumps([row.get("prompt"), row.get("answer"), row.get("info")], sort_keys=True, default=str)


def _set(
    name: str,
    rows: Sequence[Row],
    environment: EnvironmentConfig,
    loaded: LoadedEnvironment,
    sampler: Sampler,
    sampling: EvalSamplingConfig,
    *,
    rollouts_per_example: int,
    interval: int,
    skip_first_step: bool = False,
) -> EvalSet:
    whole = loaded.about.needs_group_scoring
    run = _WorkerRollouts(name, environment, loaded.workers, sampler, sampling.arguments())
    return EvalSet(name, rows, rollouts_per_example, interval, run, whole_groups=whole, skip_first_step=skip_first_step)


@dataclass(frozen=True)
class _WorkerRollouts:
    """Runs rollouts of an example in the workers of its environment."""

    name: str
    environment: EnvironmentConfig
    workers: EnvironmentWorkers
    sampler: Sampler
    sampling_args: Mapping[str, Any]

    async def __call__(self, example: Row, numbers: Sequence[int]) -> Rollouts:
        rollouts = await self._attempt(example, numbers, 0)
        for attempt in range(1, self.environment.retries + 1):
            if not any(rollout.get("error") for rollout in rollouts):
                break
            rollouts = await self._attempt(example, numbers, attempt)
        return rollouts

    async def _attempt(self, example: Row, numbers: Sequence[int], attempt: int) -> Rollouts:
        endpoint, timeout_s = self.sampler.endpoint, self.environment.timeout
        try:
            return await self.workers.run_group(
                [example] * len(numbers),
                endpoint,
                self.sampling_args,
                seeds=[self.sampler.seed_of(self.name, example, number, attempt) for number in numbers],
                timeout_s=timeout_s,
            )
        except (EnvironmentFailed, EnvironmentWorkerDied) as error:
            return [failed_rollout(example, error) for _ in numbers]
