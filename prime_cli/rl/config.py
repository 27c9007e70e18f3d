"""The configuration of a reinforcement-learning run: the flat Lab schema, with tables for the local trainer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from prime_cli.core.config_file import ImpossibleSettings, StrictModel
from prime_cli.environments.runtime import ClientType
from prime_cli.rl.algorithm_config import AlgorithmConfig, SamplingConfig, TeacherConfig
from prime_cli.rl.checkpoint_config import AdaptersConfig, CheckpointsConfig
from prime_cli.rl.curriculum_config import ConcurrencyConfig, CurriculumConfig, FilterConfig
from prime_cli.rl.environment_config import EnvironmentConfig
from prime_cli.rl.eval_config import EvalConfig, HeldOutConfig
from prime_cli.rl.inference_config import InferenceConfig
from prime_cli.rl.refusals import impossible_combinations
from prime_cli.rl.sinks.config import TensorboardConfig, WandbConfig
from prime_cli.rl.step_config import LossConfig, StepConfig
from prime_cli.rl.watch_config import WatchdogConfig

_RATE_OF_ADAPTERS = 1e-4
_EXCLUSIVE = {
    "temperature": "temp_scheduler",
    "temp_scheduler": "temperature",
    "enable_thinking": "reasoning_effort",
    "reasoning_effort": "enable_thinking",
}

_BATCHES_IN_FLIGHT = 2


class TrainerConfig(StepConfig):
    """The trainer: how a step is taken, by how many processes (`ranks`), and how long it waits for a batch.

    With several ranks each holds a share of the weights, gradients and optimizer state (FSDP2), on a GPU of its own
    where there are GPUs.
    """

    loss: LossConfig = LossConfig()
    ranks: int = Field(default=1, ge=1)
    token_export_interval: int = Field(
        default=0, ge=0, description="steps between two for which every token is written to token_exports/; 0: none is"
    )
    batch_timeout_s: float = Field(default=1800, gt=0)


class OrchestratorConfig(StrictModel):
    """The orchestrator process.

    `max_off_policy_steps` bounds how old the policy of a trained rollout may be; 0 is synchronous. Environments run in
    `env_workers` processes each, and speak to the policy as `client_type` says: with messages, which the server renders
    again at every turn (`openai_chat_completions`); with the tokens of the turns before, and only what is new rendered
    (`openai_chat_completions_token`); or with tokens that the environment's side renders (`renderer`: `auto`, or one of
    the hand-written ones for known models by its name). A worker that does not answer for `env_worker_timeout_s`, being
    stopped or stuck in its event loop, is killed and replaced; what it was doing fails.
    """

    algo: AlgorithmConfig = AlgorithmConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    max_off_policy_steps: int = Field(default=1, ge=0)
    env_workers: int = Field(default=2, ge=1)
    env_worker_timeout_s: float = Field(default=45, gt=0)
    policy_timeout_s: float = Field(default=1800, gt=0)
    client_type: ClientType = "openai_chat_completions"
    renderer: str = "auto"


class RLConfig(StrictModel):
    """One run. `batch_size` counts rollouts; a step uses `batch_size / rollouts_per_example` prompts.

    `max_inflight_rollouts` bounds what is generated at once, or `oversampling_factor` does, in batches; with neither,
    it is two batches. Where groups differ in size, a batch takes whole groups until it has `batch_size` rollouts.

    A batch refills what `pre_batch_filters` drop, and is smaller by what `post_batch_filters` drop.

    `learning_rate` is 1e-4 by default where adapters are trained. `env_files` are files in the syntax of `.env` whose
    variables the environments' processes get.
    """

    model: Path
    env: list[EnvironmentConfig] = Field(min_length=1)
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output_dir: Path = Path("outputs/rl")
    max_steps: int = Field(default=100, ge=1)
    batch_size: int = Field(default=128, ge=1)
    rollouts_per_example: int = Field(default=8, ge=1)
    max_inflight_rollouts: int | None = Field(default=None, ge=1)
    oversampling_factor: float | None = Field(default=None, gt=0)
    learning_rate: float = Field(default=1e-5, gt=0)
    checkpoint_id: str | None = Field(
        default=None, min_length=1, description="RUN or RUN@STEP: begin with the weights of its checkpoint"
    )
    seed: int = 0
    env_files: list[Path] = Field(default_factory=list)
    sampling: SamplingConfig = SamplingConfig()
    eval: EvalConfig | None = None
    val: HeldOutConfig | None = None
    pre_batch_filters: list[FilterConfig] = Field(default_factory=list)
    post_batch_filters: list[FilterConfig] = Field(default_factory=list)
    teacher: TeacherConfig | None = None
    trainer: TrainerConfig = TrainerConfig()
    orchestrator: OrchestratorConfig = OrchestratorConfig()
    inference: InferenceConfig = InferenceConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    adapters: AdaptersConfig = AdaptersConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    wandb: WandbConfig | None = None
    tensorboard: TensorboardConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _adapters_learn_faster(cls, values: Any) -> Any:
        """Adapters take a rate about ten times that of all weights, so their default is another one."""
        if not isinstance(values, dict) or values.get("learning_rate") is not None:
            return values
        trainer = values.get("trainer")
        lora = trainer.get("lora") if isinstance(trainer, dict) else getattr(trainer, "lora", None)
        return values if lora is None else values | {"learning_rate": _RATE_OF_ADAPTERS}

    @model_validator(mode="before")
    @classmethod
    def _environments_sample_as_the_run(cls, values: Any) -> Any:
        """What an environment's own [sampling] leaves out is that of the run."""
        if not isinstance(values, dict) or not isinstance(values.get("env"), list):
            return values
        common = values.get("sampling") or {}

        def completed(entry: Any) -> Any:
            own = entry.get("sampling") if isinstance(entry, dict) else None
            if not isinstance(own, dict) or not isinstance(common, dict):
                return entry
            replaced = {_EXCLUSIVE[key] for key in own if key in _EXCLUSIVE and own[key] is not None}
            return entry | {"sampling": {key: value for key, value in common.items() if key not in replaced} | own}

        return values | {"env": [completed(entry) for entry in values["env"]]}

    @model_validator(mode="after")
    def _can_work(self) -> RLConfig:
        problems = impossible_combinations(self)
        if problems:
            raise ImpossibleSettings(problems)
        return self

    def algorithm_for(self, environment: EnvironmentConfig) -> AlgorithmConfig:
        """Return the algorithm that the rollouts of `environment` are trained with."""
        return environment.algo or self.orchestrator.algo

    def curriculum_for(self, environment: EnvironmentConfig) -> CurriculumConfig:
        """Return which examples of `environment` are opened, and which groups of them are trained on."""
        return environment.curriculum or self.orchestrator.curriculum

    def group_size_for(self, environment: EnvironmentConfig) -> int:
        """Return how many rollouts of each example `environment` gives."""
        return environment.group_size or self.rollouts_per_example

    def sampling_for(self, environment: EnvironmentConfig) -> SamplingConfig:
        """Return how the rollouts of `environment` are sampled."""
        return environment.sampling or self.sampling

    @property
    def groups_per_batch(self) -> int:
        """Prompts in one training batch; where groups differ in size, on average."""
        shares = sum(environment.ratio for environment in self.env)
        size = sum(environment.ratio * self.group_size_for(environment) for environment in self.env) / shares
        return math.ceil(self.batch_size / size)

    @property
    def max_inflight(self) -> int:
        """Rollouts that may be generated at once."""
        if self.max_inflight_rollouts is not None:
            return self.max_inflight_rollouts
        return math.ceil(self.batch_size * (self.oversampling_factor or _BATCHES_IN_FLIGHT))
