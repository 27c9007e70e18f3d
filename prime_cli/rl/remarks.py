"""Settings that work and do something else than a reader of them would expect, each in a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prime_cli.rl.checkpoint_config import AdaptersConfig

if TYPE_CHECKING:
    from prime_cli.rl.config import RLConfig


def remarks(config: RLConfig) -> list[str]:
    """Return what a user should know about `config` before the run."""
    return [
        *_filters(config),
        *_schedules(config),
        *_lengths(config),
        *_algorithms(config),
        *_adapters(config),
        *_engine(config),
    ]


def _filters(config: RLConfig) -> Iterator[str]:
    for index, each in enumerate(config.post_batch_filters):
        if each.type == "zero_advantage" and not each.enforces:
            yield (
                f"`post_batch_filters[{index}].enforce` is false, and what has no advantage is not sent all the same: "
                "it would teach nothing"
            )


def _schedules(config: RLConfig) -> Iterator[str]:
    warmup = config.trainer.scheduler.warmup_steps
    if warmup > config.max_steps:
        yield (
            f"`trainer.scheduler.warmup_steps` {warmup} are not over at max_steps {config.max_steps}: the learning "
            "rate never gets to what was asked for"
        )
    temperature = config.sampling.temp_scheduler
    if temperature is not None and (temperature.total_steps or 0) > config.max_steps:
        yield (
            f"`sampling.temp_scheduler.total_steps` {temperature.total_steps} are not over at max_steps "
            f"{config.max_steps}: the temperature never gets to {temperature.end_temperature:g}"
        )


def _lengths(config: RLConfig) -> Iterator[str]:
    for index, environment in enumerate(config.env):
        longest = environment.max_total_tokens
        if longest is not None and longest > config.trainer.seq_len:
            yield (
                f"`env[{index}].max_total_tokens` {longest} is above trainer.seq_len {config.trainer.seq_len}: what is "
                "longer is cut before it is trained on"
            )


def _algorithms(config: RLConfig) -> Iterator[str]:
    for environment in config.env:
        sampling = config.sampling_for(environment)
        warm = sampling.temp_scheduler is not None or sampling.temperature != 1.0
        if config.algorithm_for(environment).type == "opd" and warm:
            yield (
                f"the environment {environment.label} is sampled at another temperature than 1, and `opd` makes the "
                "policy at that temperature like the teacher at 1"
            )


def _adapters(config: RLConfig) -> Iterator[str]:
    if config.trainer.lora is None and config.adapters != AdaptersConfig():
        yield "`adapters` does nothing here: all weights are trained, and [trainer.lora], or `lora_alpha`, is not there"


def _engine(config: RLConfig) -> Iterator[str]:
    if config.inference.engine == "embedded" and config.inference.vllm_args:
        yield "`inference.vllm_args` do nothing here: the engine is the embedded one"
