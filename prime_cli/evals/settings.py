"""What is evaluated, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import BadInput
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.runtime import Split


@dataclass(frozen=True)
class EvalSettings:
    """The settings of one evaluation.

    `num_examples` -1 takes all. With a `seed` the examples are drawn at random by it, else they are the first ones.
    `max_concurrent` counts rollouts. `model` is the name under which results are filed. With `retry_errors` a resumed
    evaluation runs the failed rollouts again.
    """

    environment: EnvironmentId
    model: str
    env_args: dict[str, Any] = field(default_factory=dict)
    split: Split = "eval"
    num_examples: int = 5
    rollouts_per_example: int = 3
    seed: int | None = None
    max_concurrent: int = 32
    sampling_args: dict[str, Any] = field(default_factory=dict)
    state_columns: tuple[str, ...] = ()
    num_workers: int = 1
    retry_errors: bool = False

    def __post_init__(self) -> None:
        if self.num_examples == 0 or self.num_examples < -1:
            raise BadInput(f"{self.num_examples} examples cannot be run", hint="give at least 1, or -1 for all")

    def as_metadata(self) -> dict[str, Any]:
        """Return the settings as metadata.json holds them; a resumed evaluation must agree with all but the number."""
        return {
            "env_id": str(self.environment),
            "env_args": self.env_args,
            "model": self.model,
            "num_examples": self.num_examples,
            "rollouts_per_example": self.rollouts_per_example,
            "shuffle": self.seed is not None,
            "shuffle_seed": self.seed,
            "sampling_args": self.sampling_args,
            "split": self.split,
            "state_columns": list(self.state_columns),
        }

    def check_resumes(self, saved: Mapping[str, Any]) -> None:
        """Check that an evaluation with the metadata `saved` can go on with these settings.

        Raises:
            BadInput: names each setting that differs.
        """
        asked = self.as_metadata()
        del asked["num_examples"]
        different = [
            f"{key} was {saved.get(key)!r}, now {value!r}" for key, value in asked.items() if saved.get(key) != value
        ]
        if different:
            raise BadInput(
                f"that evaluation had other settings: {'; '.join(different)}",
                hint="leave them out to go on with what it had, or start a new evaluation without --resume",
            )
