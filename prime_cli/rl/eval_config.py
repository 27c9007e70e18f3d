"""The `[eval]` and `[val]` tables: what is measured while a run goes on, how often, and how it samples."""

from __future__ import annotations

from typing import Any, Self

from pydantic import AliasChoices, Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.algorithm_config import told_to_the_template
from prime_cli.rl.environment_config import EnvironmentConfig

_MEANINGLESS = {
    "ratio": "all of its examples are evaluated",
    "algo": "nothing is trained on what is evaluated",
    "curriculum": "all of its examples are evaluated",
    "group_size": "`rollouts_per_example` says how many rollouts an example gets",
}


class EvalSamplingConfig(StrictModel):
    """How evaluations sample; what is left out is as in training. Unlike there, 0 and cuts may be asked for.

    `enable_thinking` (true, false) or `reasoning_effort` (a text) may be given too; the chat template gets it.
    """

    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _thinking_is_told_to_the_template(cls, values: Any) -> Any:
        return told_to_the_template(values)

    def arguments(self) -> dict[str, Any]:
        """Return what is sent with each request; what is left out is not sent."""
        body = {key: value for key in ("top_k", "min_p") if (value := getattr(self, key)) is not None}
        sent = {"max_tokens": self.max_tokens, "temperature": self.temperature, "top_p": self.top_p}
        kept: dict[str, Any] = {key: value for key, value in sent.items() if value is not None}
        body |= self.extra_body
        return kept | ({"extra_body": body} if body else {})

    def over(self, common: EvalSamplingConfig) -> EvalSamplingConfig:
        """Return this with what it leaves out as `common` has it."""
        given = {key: value for key, value in self.model_dump().items() if value not in (None, {})}
        return EvalSamplingConfig.model_validate(common.model_dump() | given)


class EvalEnvironmentConfig(EnvironmentConfig):
    """An environment whose evaluation examples are run; what is left out is as `[eval]` says."""

    sampling: EvalSamplingConfig | None = None  # type: ignore[assignment]
    num_examples: int | None = Field(default=None, ge=-1, description="-1 for all")
    rollouts_per_example: int | None = Field(
        default=None, ge=1, validation_alias=AliasChoices("rollouts_per_example", "rollouts")
    )
    interval: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _keys_mean_something(self) -> Self:
        for key, why in _MEANINGLESS.items():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"`{key}` has no meaning in an evaluation: {why}")
        if self.num_examples == 0:
            raise ValueError("`num_examples` is a number of examples, or -1 for all of them")
        return self


class EvalConfig(StrictModel):
    """Evaluations of the policy every `interval` steps and after the last; of the untrained one, too, unless skipped.

    Without [[eval.env]] the evaluation examples of the training environments are run.
    """

    interval: int = Field(default=100, ge=1)
    num_examples: int = Field(default=-1, ge=-1, description="of each environment, the first ones; -1 for all")
    rollouts_per_example: int = Field(default=1, ge=1)
    skip_first_step: bool = False
    sampling: EvalSamplingConfig = EvalSamplingConfig()
    env: list[EvalEnvironmentConfig] = Field(default_factory=list)

    @model_validator(mode="after")
    def _environments_have_names_of_their_own(self) -> Self:
        if self.num_examples == 0:
            raise ValueError("`num_examples` is a number of examples, or -1 for all of them")
        labels = [environment.label for environment in self.env]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"two environments are called {twice[0]}; give one of them a `name`")
        return self


class HeldOutConfig(StrictModel):
    """Training examples that are never trained on: `num_examples` of each environment, run every `interval` steps."""

    num_examples: int = Field(default=64, ge=1)
    rollouts_per_example: int = Field(default=1, ge=1)
    interval: int = Field(default=100, ge=1)
