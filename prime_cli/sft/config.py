"""The configuration of a supervised fine-tuning run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.config import CheckpointsConfig
from prime_cli.rl.step_config import OptimizerConfig, SchedulerConfig, StepConfig


class DataConfig(StrictModel):
    """Where demonstrations come from: a JSONL file, or the training examples of an environment with their answers.

    A line of the file is {"messages": [...]} or {"prompt": ..., "completion": ...}, each a text or a list of messages.
    """

    path: Path | None = None
    env: str | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    num_validation: int = Field(default=64, ge=0)

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if (self.path is None) == (self.env is None):
            raise ValueError("give either `path` (a JSONL file) or `env` (an environment), not both and not none")
        if self.args and self.env is None:
            raise ValueError("`args` are arguments of an environment; there is none")
        return self


class SFTTrainerConfig(StepConfig):
    """How the steps are taken. Samples are packed into rows of `micro_batch_tokens`, one row per forward pass."""

    optim: OptimizerConfig = OptimizerConfig(betas=(0.9, 0.99))
    scheduler: SchedulerConfig = SchedulerConfig(warmup_steps=20)


class SFTConfig(StrictModel):
    """One run. `batch_size` counts demonstrations."""

    model: Path
    data: DataConfig
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output_dir: Path = Path("outputs/sft")
    max_steps: int = Field(default=100, ge=1)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-5, gt=0)
    seed: int = 0
    validation_interval: int = Field(default=100, ge=1)
    trainer: SFTTrainerConfig = SFTTrainerConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
