"""What a fine-tuning run would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prime_cli.rl.plan import TrainerMemory, check_devices, memory_line, model_line, trainer_size
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.data_config import SourceConfig
from prime_cli.sft.sources import load_conversations


@dataclass(frozen=True)
class PlannedSource:
    """A source, and how many demonstrations it holds; an environment is not started to count its own."""

    label: str
    demonstrations: int | None


@dataclass(frozen=True)
class SFTPlan:
    """What a run would do. A step trains on at most `tokens_per_step` tokens."""

    parameters: int
    trained_parameters: int
    ranks: int
    device: str
    memory_per_rank: TrainerMemory
    sources: list[PlannedSource]
    steps: int
    tokens_per_step: int
    validation: int | None
    evaluated_steps: list[int]


def plan_of(config: SFTConfig, *, gpus: int) -> SFTPlan:
    """Return the plan of a run on a machine with this many GPUs. Files and datasets are read, and must be right.

    Raises:
        NotAModel: the configured model is not a model folder.
        ConfigError: a source cannot be used, or there are fewer GPUs than ranks.
    """
    size = trainer_size(config.model, config.trainer, config.trainer.ranks)
    check_devices(config.trainer.ranks, gpus)
    per_step = config.batch_size if config.batch_rows is None else config.batch_rows
    return SFTPlan(
        parameters=size.parameters,
        trained_parameters=size.trained_parameters,
        ranks=config.trainer.ranks,
        device="GPU" if gpus else "CPU",
        memory_per_rank=size.memory_per_rank,
        sources=[PlannedSource(source.label, _count(source)) for source in config.data.sources],
        steps=config.max_steps,
        tokens_per_step=per_step * config.trainer.seq_len,
        validation=config.num_validation if config.val.data is None else None,
        evaluated_steps=config.eval_steps,
    )


def plan_lines(plan: SFTPlan) -> list[str]:
    """Return the plan for a reader."""
    return [
        model_line(plan.parameters, plan.trained_parameters),
        f"trainer: {plan.ranks} process{'es' if plan.ranks > 1 else ''} on {plan.device}",
        memory_line(plan.memory_per_rank),
        *(f"data: {source.label}, {_number(source.demonstrations)} demonstrations" for source in plan.sources),
        *([] if not plan.evaluated_steps else [f"evaluated in environments: at {len(plan.evaluated_steps)} steps"]),
        f"validation: {'data of its own' if plan.validation is None else f'{plan.validation} of these demonstrations'}",
        f"each of {plan.steps} steps: at most {plan.tokens_per_step:,} tokens",
    ]


def _count(source: SourceConfig) -> int | None:
    # Only an environment, which is not started here, would write a log.
    return None if source.env is not None else len(load_conversations(source, log_directory=Path()))


def _number(count: int | None) -> str:
    return "some" if count is None else f"{count:,}"
