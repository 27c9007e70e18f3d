"""The `[[env]]` table: one environment of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.algorithm_config import AlgorithmConfig, SamplingConfig
from prime_cli.rl.curriculum_config import CurriculumConfig


class EnvironmentConfig(StrictModel):
    """One environment: a local or installed name, or `owner/name[@version]`.

    Groups of several environments are mixed in proportion to their `ratio`. `algo`, `curriculum`, `sampling`,
    `group_size` and `workers` override what the run says; `name` is how the environment is called in logs and metrics.

    A rollout ends with the turn in which it reaches one of the `max_...` limits.
    """

    id: str = Field(min_length=1)
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str | None = Field(default=None, description="of an environment on the hub, as after `@` in its id")
    args: dict[str, Any] = Field(default_factory=dict)
    ratio: float = Field(default=1.0, gt=0)
    group_size: int | None = Field(default=None, ge=1, description="instead of rollouts_per_example")
    workers: int | None = Field(default=None, ge=1, description="instead of orchestrator.env_workers")
    timeout: float | None = Field(default=None, gt=0, description="seconds that one group of rollouts may take")
    retries: int = Field(
        default=0, ge=0, validation_alias=AliasChoices("retries", "max_retries"),
        description="how often a rollout that ended with an error is run again",
    )  # fmt: skip
    sampling: SamplingConfig | None = Field(default=None, description="keys left out are those of the run")
    algo: AlgorithmConfig | None = None
    curriculum: CurriculumConfig | None = None
    max_turns: int | None = Field(default=None, ge=1, description="turns of the model in a rollout")
    max_input_tokens: int | None = Field(default=None, ge=1, description="tokens of the longest prompt of a rollout")
    max_output_tokens: int | None = Field(default=None, ge=1, description="tokens sampled in all turns of a rollout")
    max_total_tokens: int | None = Field(default=None, ge=1, description="tokens of the conversation of a rollout")

    @model_validator(mode="after")
    def _one_version(self) -> EnvironmentConfig:
        if self.version is not None and "@" in self.id:
            raise ValueError(f"the id {self.id} names a version, and `version` another; give one of them")
        return self

    @property
    def reference(self) -> str:
        """The id with its version."""
        return self.id if self.version is None else f"{self.id}@{self.version}"

    @property
    def label(self) -> str:
        """How the environment is called in logs and metrics."""
        return self.name or Path(self.id.split("@")[0]).name or "environment"

    @property
    def limits(self) -> dict[str, int]:
        """The limits of a rollout that were given."""
        names = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
