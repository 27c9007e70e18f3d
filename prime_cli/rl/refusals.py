"""Settings that are right one by one and cannot work together, each with the reason, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prime_cli.core.config_file import Problem

if TYPE_CHECKING:
    from prime_cli.rl.config import RLConfig


def impossible_combinations(config: RLConfig) -> list[Problem]:
    """Return what cannot work in `config`."""
    return [*_algorithms(config), *_batches(config), *_steps(config)]


def _algorithms(config: RLConfig) -> Iterator[Problem]:
    for index, environment in enumerate(config.env):
        algorithm = config.algorithm_for(environment)
        if algorithm.compares_within_a_group and config.group_size_for(environment) == 1:
            yield Problem(
                "rollouts_per_example" if environment.group_size is None else f"env[{index}].group_size",
                f"`{algorithm.type}` compares a rollout with the others of its group, and in a group of 1 every "
                "advantage is zero; set it to 8 or 16",
            )
        if algorithm.needs_a_teacher and config.teacher is None:
            location = "orchestrator.algo.type" if environment.algo is None else f"env[{index}].algo.type"
            yield Problem(location, f"`{algorithm.type}` learns from a teacher; add [teacher] with a `model`")
    used = any(config.algorithm_for(environment).needs_a_teacher for environment in config.env)
    if config.teacher is not None and not used:
        yield Problem("teacher", "no algorithm learns from one: set orchestrator.algo.type to opd or sft")


def _batches(config: RLConfig) -> Iterator[Problem]:
    sizes = {config.group_size_for(environment) for environment in config.env}
    if sizes == {config.rollouts_per_example} and config.batch_size % config.rollouts_per_example:
        yield Problem(
            "batch_size", f"{config.batch_size} is not a multiple of rollouts_per_example {config.rollouts_per_example}"
        )
    key = "oversampling_factor" if config.max_inflight_rollouts is None else "max_inflight_rollouts"
    if config.max_inflight_rollouts is not None and config.oversampling_factor is not None:
        yield Problem(
            "oversampling_factor", "bounds what is in flight, as max_inflight_rollouts does; give one of them"
        )
    elif config.max_inflight < max(sizes):
        yield Problem(key, "must allow at least rollouts_per_example rollouts: a group starts as a whole")
    labels = [environment.label for environment in config.env]
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        yield Problem("env", f"several environments are called {label}; give each a `name` of its own")
    if config.trainer.ranks > config.batch_size:
        yield Problem("trainer.ranks", f"{config.trainer.ranks} ranks share {config.batch_size} rollouts of a batch")


def _steps(config: RLConfig) -> Iterator[Problem]:
    scheduler, lora = config.trainer.scheduler, config.trainer.lora
    if scheduler.decay_steps > config.max_steps:
        yield Problem(
            "trainer.scheduler.decay_steps", f"{scheduler.decay_steps} is more than max_steps {config.max_steps}"
        )
    if scheduler.min_lr > config.learning_rate:
        yield Problem("trainer.scheduler.min_lr", f"{scheduler.min_lr} is above learning_rate {config.learning_rate}")
    if lora is not None and lora.dropout:
        yield Problem(
            "trainer.lora.dropout",
            "would train on other log-probabilities than those that were sampled from; it is for fine-tuning, "
            "leave it 0 here",
        )
    if config.sampling.max_tokens >= config.trainer.seq_len:
        yield Problem(
            "sampling.max_tokens",
            f"{config.sampling.max_tokens} leaves no room for a prompt in trainer.seq_len {config.trainer.seq_len}",
        )
