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
    evaluation runs the failed rollouts again. `extra_env_kwargs` are set on the loaded environment. With
    `independent_scoring` one that scores the rollouts of an example together is refused. `name` is how the evaluation
    is called where it is shown; one that is resumed may be given another.
    A rollout that takes longer than `timeout_s` fails; one that fails for a reason that may pass is run again
    `max_retries` times. `max_cost` bounds what all rollouts cost together.
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
    extra_env_kwargs: dict[str, Any] = field(default_factory=dict)
    independent_scoring: bool = False
    name: str | None = None
    timeout_s: float | None = None
    max_retries: int = 3
    max_cost: float | None = None

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
            **({"extra_env_kwargs": self.extra_env_kwargs} if self.extra_env_kwargs else {}),
            **({"name": self.name} if self.name else {}),
        }

    def check_resumes(self, saved: Mapping[str, Any]) -> None:
        """Check that an evaluation with the metadata `saved` can go on with these settings.

        Raises:
            BadInput: names each setting that differs.
        """
        different = self._different(saved)
        if different:
            raise BadInput(
                f"that evaluation had other settings: {'; '.join(different)}",
                hint="leave them out to go on with what it had, or start a new evaluation without --resume",
            )

    def goes_on_from(self, saved: Mapping[str, Any]) -> bool:
        """Say whether an evaluation with the metadata `saved` is this one, with no more examples than this one."""
        had = saved.get("num_examples")
        fewer = self.num_examples < 0 or (isinstance(had, int) and 0 <= had <= self.num_examples)
        return fewer and not self._different(saved)

    def _different(self, saved: Mapping[str, Any]) -> list[str]:
        asked = {"extra_env_kwargs": None, **self.as_metadata()}
        for free in ("num_examples", "name"):
            asked.pop(free, None)
        return [
            f"{key} was {saved.get(key)!r}, now {value!r}" for key, value in asked.items() if saved.get(key) != value
        ]
