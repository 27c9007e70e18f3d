"""The evaluations of a training run: their sets, from the run's environments and others, beside its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.rl.config import RLConfig
from prime_cli.rl.environment_config import EnvironmentConfig
from prime_cli.rl.eval_config import EvalEnvironmentConfig, EvalSamplingConfig
from prime_cli.rl.evaluation.environments import LoadedEnvironment, Sampler, eval_set, held_out_set
from prime_cli.rl.evaluation.evaluator import EvalSet
from prime_cli.rl.orchestrator.curriculum import Concurrency
from prime_cli.rl.orchestrator.environments import RunEnvironments
from prime_cli.rl.orchestrator.policy import InferenceAddress


@dataclass
class WhatIsLeft:
    """The permits that evaluations leave to the training; it is a `Concurrency`.

    Attributes:
        of: all permits.
        claims: those that evaluations hold or wait for.
    """

    of: Concurrency
    claims: Callable[[], int]

    def limit(self) -> int:
        """Return the rollouts of the training that may be in flight."""
        return max(0, self.of.limit() - self.claims())

    def metrics(self) -> dict[str, float | int]:
        """Return the figures of all permits."""
        return self.of.metrics()


async def sets_to_evaluate(config: RLConfig, environments: RunEnvironments, address: InferenceAddress) -> list[EvalSet]:
    """Return the sets that [eval] and [val] ask for; `environments` have started, further ones are started among them.

    Raises:
        EnvironmentFailed: an environment does not load.
        PrimeError: it has no evaluation examples.
    """
    sets: list[EvalSet] = []
    if config.val is not None:
        for environment in config.env:
            rows, loaded = environments.held_out[environment.label], environments.loaded[environment.label]
            sampler = _sampler(config, environment, address)
            sets.append(held_out_set(config.val, environment, rows, loaded, sampler))
    if config.eval is not None:
        evaluated = config.eval.env or [_evaluated(environment) for environment in config.env]
        loaded_ones = await asyncio.gather(*(_loaded(config, environments, one) for one in evaluated))
        for one, loaded in zip(evaluated, loaded_ones, strict=True):
            sets.append(await eval_set(config.eval, one, loaded, _sampler(config, one, address)))
    return sets


async def _loaded(config: RLConfig, environments: RunEnvironments, wanted: EvalEnvironmentConfig) -> LoadedEnvironment:
    """Return the workers of the training environment that is the same, or new ones."""
    for environment in config.env:
        if _identity(environment) == _identity(wanted):
            return environments.loaded[environment.label]
    return await environments.load(wanted, name=f"eval-{wanted.label}")


def _identity(environment: EnvironmentConfig) -> tuple[object, ...]:
    return environment.reference, environment.args, environment.limits


def _evaluated(environment: EnvironmentConfig) -> EvalEnvironmentConfig:
    """Return a training environment as one of [[eval.env]]."""
    kept = environment.model_dump(exclude={"sampling", "algo", "ratio", "group_size", "workers", "curriculum"})
    return EvalEnvironmentConfig.model_validate({**kept, "name": environment.label})


def _sampler(config: RLConfig, environment: EnvironmentConfig, address: InferenceAddress) -> Sampler:
    """Return how the policy is sampled where [eval] does not say: as in the training of that environment, if any."""
    own = [one for one in config.env if one.label == environment.label]
    training = config.sampling_for(own[0]) if own else config.sampling
    common = EvalSamplingConfig(
        max_tokens=training.max_tokens, temperature=training.temperature, extra_body=training.extra_body
    )
    return Sampler(ModelEndpoint(address.base_url, address.model, takes_many=address.takes_many), common, config.seed)
