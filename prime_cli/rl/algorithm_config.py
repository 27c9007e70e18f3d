"""The tables that say what rollouts teach, and the teacher that some algorithms need."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.rl.curriculum_config import LengthPenaltyConfig, TemperatureScheduleConfig
from prime_cli.rl.step_config import TypedTable

_OF_THE_TEMPLATE = {"enable_thinking": bool, "reasoning_effort": str}


def told_to_the_template(values: Any) -> Any:
    """Return the keys of a table of sampling with those that are for the chat template put where it gets them.

    Raises:
        ValueError: both ways of asking for thought are given, or one with a value of another kind.
    """
    if not isinstance(values, dict):
        return values
    asked = {key: values[key] for key in _OF_THE_TEMPLATE if values.get(key) is not None}
    if len(asked) > 1:
        raise ValueError("`enable_thinking` and `reasoning_effort` exclude each other; give the one that the model has")
    for key, value in asked.items():
        if not isinstance(value, _OF_THE_TEMPLATE[key]):
            raise ValueError(f"`{key}` is a {_OF_THE_TEMPLATE[key].__name__}, found {value!r}")
    rest = {key: value for key, value in values.items() if key not in _OF_THE_TEMPLATE}
    body = rest.get("extra_body") or {}
    if not asked or not isinstance(body, dict):
        return rest
    told = body.get("chat_template_kwargs") or {}
    if not isinstance(told, dict):
        raise ValueError(f"`extra_body.chat_template_kwargs` is a table, found {told!r}")
    return rest | {"extra_body": body | {"chat_template_kwargs": told | asked}}


class SamplingConfig(StrictModel):
    """How training rollouts sample. A distribution that top_p, top_k or min_p cut cannot be trained on exactly.

    `enable_thinking` (true, false) or `reasoning_effort` (a text) may be given too; the chat template gets it, as
    `extra_body.chat_template_kwargs`.
    """

    max_tokens: int = Field(default=512, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    temp_scheduler: TemperatureScheduleConfig | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _thinking_is_told_to_the_template(cls, values: Any) -> Any:
        return told_to_the_template(values)

    @model_validator(mode="after")
    def _one_temperature(self) -> SamplingConfig:
        if self.temp_scheduler is not None and "temperature" in self.model_fields_set and self.temperature != 1.0:
            raise ValueError("`temperature` and `temp_scheduler` exclude each other; give one of them")
        return self

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_cut(cls, values: Any) -> Any:
        if isinstance(values, dict):
            extra = values.get("extra_body")
            inside = extra if isinstance(extra, dict) else {}
            cuts = [key for key in ("top_p", "top_k", "min_p") if key in values or key in inside]
            if cuts:
                raise ValueError(
                    f"{' and '.join(f'`{key}`' for key in cuts)} would cut the distribution that is sampled from; the "
                    "trainer computes log-probabilities over the whole of it, so training would be off policy unseen"
                )
        return values


class AlgorithmConfig(TypedTable):
    """How rollouts become advantages and weights: see `prime_cli.rl.orchestrator.algorithms`.

    `echo_weights` are cross-entropy weights by role of what the environment says after a turn of the model; `rae_decay`
    is how much of a running baseline stays after each rollout; `length_penalty` lets long rollouts of a group lose.
    """

    type: Literal["grpo", "max_rl", "rae", "echo", "opd", "sft"] = "grpo"
    rae_decay: float = Field(default=0.95, gt=0, lt=1)
    echo_weights: dict[str, float] = Field(default_factory=lambda: {"tool": 0.1})
    length_penalty: LengthPenaltyConfig | None = None

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> AlgorithmConfig:
        self._refuse_keys_of_other_types(
            self.type, {"rae_decay": ("rae",), "echo_weights": ("echo",), "length_penalty": ("grpo",)}
        )
        return self

    @property
    def compares_within_a_group(self) -> bool:
        """Whether a rollout is measured by the others of its group."""
        return self.type in ("grpo", "max_rl", "echo")

    @property
    def needs_a_teacher(self) -> bool:
        """Whether another model judges the tokens, or samples them."""
        return self.type in ("opd", "sft")


class TeacherClientConfig(StrictModel):
    """Where a teacher is served: `base_url` ends in /v1, `api_key_var` names the variable that holds its key.

    `headers_from_env` gives further headers: the name of each, and of the variable that holds its value.
    """

    base_url: str | None = None
    api_key_var: str | None = None
    headers_from_env: dict[str, str] = Field(default_factory=dict)


class TeacherConfig(StrictModel):
    """The model that `opd` and `sft` learn from: a folder, served by the run itself, or a name at `client.base_url`.

    It must use the tokenizer of the policy. `sampling` is how it samples for `sft`.
    """

    model: str = Field(min_length=1)
    client: TeacherClientConfig = TeacherClientConfig()
    sampling: SamplingConfig | None = None
