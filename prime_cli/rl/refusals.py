"""Settings that are right one by one and cannot work together, each with the reason, all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prime_cli.core.config_file import Problem

if TYPE_CHECKING:
    from prime_cli.rl.config import RLConfig


def impossible_combinations(config: RLConfig) -> list[Problem]:
    """Return what cannot work in `config`."""
    return [
        *_algorithms(config),
        *_batches(config),
        *_sampling(config),
        *_concurrency(config),
        *_steps(config),
        *_checkpoints(config),
        *_transfers(config),
    ]


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


def _sampling(config: RLConfig) -> Iterator[Problem]:
    of_environments = {f"env[{index}].sampling": each.sampling for index, each in enumerate(config.env)}
    of_teacher = None if config.teacher is None else config.teacher.sampling
    if of_teacher is not None and of_teacher.temp_scheduler is not None:
        yield Problem("teacher.sampling.temp_scheduler", "is for the policy; a teacher has one temperature")
    for location, sampling in {"sampling": config.sampling, "teacher.sampling": of_teacher, **of_environments}.items():
        if sampling is not None and sampling.max_tokens >= config.trainer.seq_len:
            yield Problem(
                f"{location}.max_tokens",
                f"{sampling.max_tokens} leaves no room for a prompt in trainer.seq_len {config.trainer.seq_len}",
            )
    for index, environment in enumerate(config.env):
        gates = config.curriculum_for(environment).gates
        name = next((name for name, gate in gates.items() if gate.type == "advantage_range"), None)
        if name is not None and config.algorithm_for(environment).needs_a_teacher:
            own = "orchestrator" if environment.curriculum is None else f"env[{index}]"
            yield Problem(
                f"{own}.curriculum.gates.{name}",
                f"looks at advantages, and `{config.algorithm_for(environment).type}` has none",
            )


def _concurrency(config: RLConfig) -> Iterator[Problem]:
    if config.orchestrator.concurrency.type == "static":
        return
    for key in ("max_inflight_rollouts", "oversampling_factor"):
        if getattr(config, key) is not None:
            yield Problem(
                key, "bounds a static number of rollouts; an adaptive one has orchestrator.concurrency.max_inflight"
            )
    if config.orchestrator.max_off_policy_steps == 0:
        yield Problem(
            "orchestrator.concurrency.type",
            "`adaptive` follows the load of the server, and a synchronous run (max_off_policy_steps 0) depends on "
            "nothing but its seed",
        )


def _checkpoints(config: RLConfig) -> Iterator[Problem]:
    best = config.checkpoints.keep_best or ""
    for table, settings in (("eval", config.eval), ("val", config.val)):
        if best.startswith(f"{table}/") and settings is None:
            yield Problem("checkpoints.keep_best", f"{best} is a figure of evaluations, and there is no [{table}]")


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


def _transfers(config: RLConfig) -> Iterator[Problem]:
    transfer, lora = config.inference.weight_transfer, config.trainer.lora
    if transfer == "adapter" and lora is None:
        yield Problem("inference.weight_transfer", "`adapter` hands over adapters, and trainer.lora is not there")
    if transfer == "nccl" and lora is not None:
        yield Problem("inference.weight_transfer", "`nccl` sends whole weights; adapters travel as `adapter`")
    if transfer == "nccl" and config.trainer.ranks > 1:
        yield Problem("inference.weight_transfer", "`nccl` sends from a trainer of one rank; use `filesystem`")
