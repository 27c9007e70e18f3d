"""The configuration of a reinforcement-learning run: the flat Lab schema, with tables for the local trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.algorithm_config import AlgorithmConfig, SamplingConfig, TeacherConfig
from prime_cli.rl.step_config import LossConfig, StepConfig


class EnvironmentConfig(StrictModel):
    """One environment: a local or installed name, or `owner/name[@version]`; `algo` overrides the orchestrator's."""

    id: str = Field(min_length=1)
    name: str | None = None
    args: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = Field(default=None, gt=0, description="seconds that one group of rollouts may take")
    algo: AlgorithmConfig | None = None


class TrainerConfig(StepConfig):
    """The trainer: how a step is taken, by how many processes (`ranks`), and how long it waits for a batch.

    With several ranks each holds a share of the weights, gradients and optimizer state (FSDP2), on a GPU of its own
    where there are GPUs.
    """

    loss: LossConfig = LossConfig()
    ranks: int = Field(default=1, ge=1)
    batch_timeout_s: float = Field(default=1800, gt=0)


class OrchestratorConfig(StrictModel):
    """The orchestrator process.

    `max_off_policy_steps` bounds how old the policy of a trained rollout may be; 0 is synchronous. Environments run in
    `env_workers` processes each.
    """

    algo: AlgorithmConfig = AlgorithmConfig()
    max_off_policy_steps: int = Field(default=1, ge=0)
    env_workers: int = Field(default=2, ge=1)
    policy_timeout_s: float = Field(default=1800, gt=0)


class InferenceConfig(StrictModel):
    """The inference server. `auto` takes vLLM where it and a GPU are present, else the embedded engine."""

    engine: Literal["auto", "embedded", "vllm"] = "auto"
    num_slots: int = Field(default=256, ge=1)
    gpu_memory_utilization: float = Field(default=0.5, gt=0, le=1, description="vLLM's share; the rest trains")
    startup_timeout_s: float = Field(default=300, gt=0)


class CheckpointsConfig(StrictModel):
    """Weights in Hugging Face layout every `interval` steps and at the end; 0 means only at the end."""

    interval: int = Field(default=0, ge=0)


class RLConfig(StrictModel):
    """One run. `batch_size` counts rollouts; a step uses `batch_size / rollouts_per_example` prompts."""

    model: Path
    env: list[EnvironmentConfig] = Field(min_length=1, max_length=1)
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output_dir: Path = Path("outputs/rl")
    max_steps: int = Field(default=100, ge=1)
    batch_size: int = Field(default=128, ge=1)
    rollouts_per_example: int = Field(default=8, ge=1)
    max_inflight_rollouts: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=1e-5, gt=0)
    seed: int = 0
    sampling: SamplingConfig = SamplingConfig()
    teacher: TeacherConfig | None = None
    trainer: TrainerConfig = TrainerConfig()
    orchestrator: OrchestratorConfig = OrchestratorConfig()
    inference: InferenceConfig = InferenceConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()

    @model_validator(mode="before")
    @classmethod
    def _lora_alpha_of_the_flat_schema(cls, values: Any) -> Any:
        """`lora_alpha` at the top, as hosted training takes it, asks for adapters with that alpha."""
        if not isinstance(values, dict) or values.get("lora_alpha") is None:
            return values
        alpha = values["lora_alpha"]
        rest = {key: value for key, value in values.items() if key != "lora_alpha"}
        trainer = rest.get("trainer") or {}
        if not isinstance(trainer, dict):
            return rest
        lora = trainer.get("lora") or {}
        if isinstance(lora, dict) and lora.get("alpha", alpha) != alpha:
            raise ValueError(f"lora_alpha {alpha} and trainer.lora.alpha {lora['alpha']} differ; give one of them")
        return rest | {"trainer": trainer | {"lora": lora | {"alpha": alpha}}}

    @model_validator(mode="after")
    def _algorithms_have_what_they_need(self) -> RLConfig:
        for environment in self.env:
            algorithm = self.algorithm_for(environment)
            if algorithm.compares_within_a_group and self.rollouts_per_example == 1:
                raise ValueError(
                    f"`{algorithm.type}` compares a rollout with the others of its group, and in a group of 1 every "
                    "advantage is zero; set rollouts_per_example to 8 or 16"
                )
            if algorithm.needs_a_teacher and self.teacher is None:
                raise ValueError(f"`{algorithm.type}` learns from a teacher; add [teacher] with a `model`")
        used = any(self.algorithm_for(environment).needs_a_teacher for environment in self.env)
        if self.teacher is not None and not used:
            raise ValueError(
                "there is a [teacher], and no algorithm that learns from one: set orchestrator.algo.type to opd or sft"
            )
        return self

    @model_validator(mode="after")
    def _batch_is_whole_groups(self) -> RLConfig:
        if self.batch_size % self.rollouts_per_example:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of rollouts_per_example {self.rollouts_per_example}"
            )
        if self.max_inflight_rollouts is not None and self.max_inflight_rollouts < self.rollouts_per_example:
            raise ValueError("max_inflight_rollouts must be at least rollouts_per_example: a group starts as a whole")
        scheduler, lora = self.trainer.scheduler, self.trainer.lora
        if scheduler.decay_steps > self.max_steps:
            raise ValueError(f"scheduler.decay_steps {scheduler.decay_steps} is more than max_steps {self.max_steps}")
        if scheduler.min_lr > self.learning_rate:
            raise ValueError(f"scheduler.min_lr {scheduler.min_lr} is above learning_rate {self.learning_rate}")
        if lora is not None and lora.dropout:
            raise ValueError(
                "lora.dropout would train on other log-probabilities than those that were sampled from; it is for "
                "fine-tuning, leave it 0 here"
            )
        if self.sampling.max_tokens >= self.trainer.seq_len:
            raise ValueError(
                f"sampling.max_tokens {self.sampling.max_tokens} leaves no room for a prompt "
                f"in trainer.seq_len {self.trainer.seq_len}"
            )
        return self

    def algorithm_for(self, environment: EnvironmentConfig) -> AlgorithmConfig:
        """Return the algorithm that the rollouts of `environment` are trained with."""
        return environment.algo or self.orchestrator.algo

    @property
    def groups_per_batch(self) -> int:
        """Prompts in one training batch."""
        return self.batch_size // self.rollouts_per_example

    @property
    def max_inflight_groups(self) -> int:
        """Groups that may be generated at once: two batches' worth unless `max_inflight_rollouts` says otherwise."""
        if self.max_inflight_rollouts is None:
            return 2 * self.groups_per_batch
        return self.max_inflight_rollouts // self.rollouts_per_example
