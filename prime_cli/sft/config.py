"""The configuration of a supervised fine-tuning run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.checkpoint_config import AdaptersConfig, CheckpointsConfig
from prime_cli.rl.eval_config import EvalConfig, EvalEnvironmentConfig
from prime_cli.rl.sinks.config import TensorboardConfig, WandbConfig
from prime_cli.rl.step_config import OptimizerConfig, SchedulerConfig, StepConfig
from prime_cli.rl.watch_config import WatchdogConfig
from prime_cli.sft.data_config import DataConfig
from prime_cli.sft.other_names import with_our_names


class SFTTrainerConfig(StepConfig):
    """How the steps are taken. Samples are packed into rows of `micro_batch_tokens`, one row per forward pass.

    With several `ranks` each holds a share of the weights, gradients and optimizer state (FSDP2), on a GPU of its own
    where there are GPUs.
    """

    optim: OptimizerConfig = OptimizerConfig(betas=(0.9, 0.99))
    scheduler: SchedulerConfig = SchedulerConfig(warmup_steps=20)
    ranks: int = Field(default=1, ge=1)


class ValidationConfig(StrictModel):
    """The loss on held-out demonstrations, every `interval` steps and at the end; with `eval_on_start` before step 1.

    Without `data` of its own the first `data.num_validation` demonstrations are held out.
    """

    interval: int = Field(default=100, ge=1)
    eval_on_start: bool = False
    data: DataConfig | None = None


class SFTCheckpointsConfig(CheckpointsConfig):
    """What a run can go on from: after every `interval` steps, and at the end, the whole state and the weights.

    See the same table of `prime rl run`.
    """

    interval: int = Field(default=100, ge=0, description="0: at the end only")


class SFTEvalConfig(EvalConfig):
    """Evaluations in environments every `interval` steps and after the last, by processes beside the training.

    A server of its own gets the weights of those steps. `max_concurrent` rollouts run at once, of each environment in
    `env_workers` processes. Sampling is at a temperature of 1, to 512 tokens at most, unless asked otherwise.
    """

    env: list[EvalEnvironmentConfig] = Field(min_length=1)
    max_concurrent: int = Field(default=128, ge=1)
    env_workers: int = Field(default=1, ge=1)
    env_worker_timeout_s: float = Field(default=45, gt=0, description="a worker silent for so long is replaced")
    startup_timeout_s: float = Field(default=300, gt=0)
    timeout_s: float = Field(default=1800, gt=0, description="for the next rollout of an evaluation to end")


class SFTConfig(StrictModel):
    """One run. `batch_size` counts demonstrations; `batch_rows` takes as many as fill that many rows of `seq_len`."""

    model: Path
    data: DataConfig
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output_dir: Path = Path("outputs/sft")
    max_steps: int = Field(default=100, ge=1)
    batch_size: int = Field(default=64, ge=1)
    batch_rows: int | None = Field(default=None, ge=1, description="in place of batch_size, which is ignored then")
    learning_rate: float = Field(default=1e-5, gt=0)
    checkpoint_id: str | None = Field(
        default=None, min_length=1, description="RUN or RUN@STEP: begin with the weights of its checkpoint"
    )
    seed: int = 0
    val: ValidationConfig = ValidationConfig()
    eval: SFTEvalConfig | None = None
    trainer: SFTTrainerConfig = SFTTrainerConfig()
    checkpoints: SFTCheckpointsConfig = SFTCheckpointsConfig()
    adapters: AdaptersConfig = AdaptersConfig()
    wandb: WandbConfig | None = None
    tensorboard: TensorboardConfig | None = None
    watchdog: WatchdogConfig = WatchdogConfig()

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, values: Any) -> Any:
        return with_our_names(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _what_belongs_together_fits(self) -> Self:
        scheduler = self.trainer.scheduler
        if scheduler.decay_steps > self.max_steps:
            raise ValueError(f"scheduler.decay_steps {scheduler.decay_steps} is more than max_steps {self.max_steps}")
        if scheduler.min_lr > self.learning_rate:
            raise ValueError(f"scheduler.min_lr {scheduler.min_lr} is above learning_rate {self.learning_rate}")
        if self.val.data is not None and self.data.num_validation:
            raise ValueError("give `data.num_validation` or `[val.data]`, not both")
        if self.val.data is not None and self.val.data.num_validation is not None:
            raise ValueError("all of `[val.data]` is for validation; `num_validation` has no meaning there")
        return self

    @property
    def num_validation(self) -> int:
        """Demonstrations of `data` that are held out."""
        return self.data.held_out(has_validation_data=self.val.data is not None)

    @property
    def eval_steps(self) -> list[int]:
        """The steps whose weights are evaluated in environments, in order; 0 is the model as it came."""
        if self.eval is None:
            return []
        intervals = {environment.interval or self.eval.interval for environment in self.eval.env}
        steps = {step for interval in intervals for step in range(0, self.max_steps + 1, interval)} | {self.max_steps}
        return sorted(steps - {0} if self.eval.skip_first_step else steps)
