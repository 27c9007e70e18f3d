"""What can be said of an evaluation: the keys of the files of `prime eval run`, which its options set too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.environments.runtime import ClientType, Split
from prime_cli.evals.providers import PROVIDERS

_MERGED = ("args", "sampling", "headers", "headers_from_state", "extra_env_kwargs", "taskset", "harness")
_ALTERNATIVES = (
    ({"model"}, {"endpoint_id"}),
    ({"provider"}, {"api_base_url"}),
    ({"seed"}, {"shuffle", "shuffle_seed"}),
)


class EvalKeys(StrictModel):
    """What stands at the top of a file, for all of its evaluations, and in each `[[eval]]`, for that one."""

    id: str | None = Field(
        default=None,
        validation_alias=AliasChoices("id", "env_id"),
        description="The environment: a name, a folder, or `owner/name[@version]` of the hub.",
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("args", "env_args"),
        description="Arguments of its `load_environment`.",
    )
    taskset: dict[str, Any] = Field(default_factory=dict, description="Becomes `args.config.taskset`.")
    harness: dict[str, Any] = Field(default_factory=dict, description="Becomes `args.config.harness`.")
    extra_env_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Attributes of the loaded environment that are set, such as `max_turns`."
    )
    env_dir_path: Path | None = Field(
        default=None, description="Where folders of environments lie; `environments` when not given."
    )
    split: Split | None = Field(default=None, description="`eval` unless given.")
    name: str | None = Field(
        default=None,
        min_length=1,
        validation_alias=AliasChoices("name", "eval_name"),
        description="How the evaluation is called where it is shown, and on a hub.",
    )

    model: str | None = Field(
        default=None, min_length=1, description="An alias of the endpoints, a URL, a folder of weights, or any name."
    )
    endpoint_id: str | None = Field(default=None, min_length=1, description="An alias, and nothing else than that.")
    endpoints_path: Path | None = Field(default=None, description="`configs/endpoints.toml` unless given.")
    provider: str | None = Field(default=None, description=f"One of {', '.join(PROVIDERS)}: where to ask for `model`.")
    api_base_url: str | None = Field(default=None, min_length=1, description="The server to ask for `model`.")
    api_key_var: str | None = Field(default=None, description="The environment variable that holds the key.")
    api_client_type: ClientType | None = Field(default=None, description="How the server is spoken to.")
    model_name: str | None = Field(default=None, description="The model to ask for where `model` is a URL.")
    tokenizer: str | None = Field(
        default=None, description="The folder with the model's tokenizer, which the client type `renderer` needs."
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("headers", "header"),
        description='Sent with every request; also a list of "Name: value".',
    )
    headers_from_state: dict[str, str] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("headers_from_state", "header_from_state"),
        description="Headers that are read from the rollout's state: header = key.",
    )

    num_examples: int | None = Field(default=None, description="-1 for all; the environment's own default, else 5.")
    rollouts_per_example: PositiveInt | None = Field(default=None, description="The environment's default, else 3.")
    max_concurrent: PositiveInt | None = Field(default=None, description="Rollouts at once; 32 unless given.")
    shuffle: bool | None = Field(default=None, description="Draw the examples at random, not the first ones.")
    shuffle_seed: int | None = Field(default=None, description="By which `shuffle` draws; 0 unless given.")
    seed: int | None = Field(default=None, description="`shuffle` and `shuffle_seed` in one.")
    max_tokens: PositiveInt | None = Field(default=None, description="Into `sampling`.")
    temperature: float | None = Field(default=None, ge=0, description="Into `sampling`.")
    sampling: dict[str, Any] = Field(
        default_factory=dict,
        validation_alias=AliasChoices("sampling", "sampling_args"),
        description="Sent with every request; wins over the two above.",
    )
    independent_scoring: bool | None = Field(
        default=None, description="Refuse an environment that scores the rollouts of an example together."
    )
    state_columns: list[str] = Field(default_factory=list, description="Keys of the state to keep with each rollout.")
    num_workers: PositiveInt | Literal["auto"] | None = Field(
        default=None, description="Processes of the environment; `auto`: one for each 256 rollouts at once."
    )
    output_dir: Path | None = Field(default=None, description="In place of the environment's or workspace's `outputs`.")
    resume: bool | Path = Field(
        default=False,
        validation_alias=AliasChoices("resume", "resume_path"),
        description="The folder of an evaluation to go on with; true: the newest with these settings.",
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        validation_alias=AliasChoices("timeout_s", "timeout"),
        description="Seconds after which a rollout fails, waiting for the server included.",
    )
    max_retries: NonNegativeInt | None = Field(
        default=None, description="How often a rollout is run again that failed for a reason that may pass; 3."
    )
    max_cost: float | None = Field(
        default=None, gt=0, description="No rollout starts that could make the evaluation cost more; see `price`."
    )
    retry_errors: bool | None = Field(
        default=None, description="When an evaluation goes on, run its failed rollouts again too."
    )

    @model_validator(mode="before")
    @classmethod
    def _each_key_once(cls, data: Any) -> Any:
        for field in cls.model_fields.values() if isinstance(data, dict) else ():
            if isinstance(field.validation_alias, AliasChoices):
                given = [str(name) for name in field.validation_alias.choices if name in data]
                if len(given) > 1:
                    raise ValueError(f"`{given[0]}` and `{given[1]}` are the same; give one of them")
        return data

    @field_validator("headers", "headers_from_state", mode="before")
    @classmethod
    def _as_table(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        pairs = [entry.partition(":") if isinstance(entry, str) else ("", "", "") for entry in value]
        wrong = next(
            (entry for entry, (name, colon, _) in zip(value, pairs, strict=True) if not (name.strip() and colon)), None
        )
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not of the form 'Name: value'")
        return {name.strip(): text.strip() for name, _, text in pairs}

    @field_validator("state_columns", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("provider")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None and value not in PROVIDERS:
            raise ValueError(f"there is no provider {value!r}; there are {', '.join(PROVIDERS)}")
        return value

    @field_validator("num_examples")
    @classmethod
    def _can_be_run(cls, value: int | None) -> int | None:
        if value is not None and (value == 0 or value < -1):
            raise ValueError(f"{value} examples cannot be run; give at least 1, or -1 for all")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> EvalKeys:
        for one, other in _ALTERNATIVES:
            both = [sorted(names & self.model_fields_set) for names in (one, other)]
            if all(both):
                raise ValueError(f"`{both[0][0]}` and `{both[1][0]}` say the same; give one of them")
        if (self.taskset or self.harness) and "config" in self.args:
            raise ValueError("`taskset` and `harness` become `args.config`, which is given too; leave one out")
        if "id" in self.taskset:
            raise ValueError(
                "`taskset.id` belongs to the tasksets of verifiers 0.2 and later; environments here are named by `id`"
            )
        return self

    def given(self) -> dict[str, Any]:
        """Return what was given, by the names of the fields, with `max_tokens` and `temperature` among `sampling`."""
        values = {name: getattr(self, name) for name in self.model_fields_set & EvalKeys.model_fields.keys()}
        loose = {name: values.pop(name) for name in ("max_tokens", "temperature") if name in values}
        if loose:
            values["sampling"] = {**loose, **values.get("sampling", {})}
        return values


def merge(*levels: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds where each level says more precisely what the one before it said in general.

    Tables are merged key by key. What says the same in other words (`model` and `endpoint_id`) is replaced.
    """
    result: dict[str, Any] = {}
    for level in levels:
        for one, other in _ALTERNATIVES:
            for said, instead in ((one, other), (other, one)):
                if said & level.keys():
                    result = {name: value for name, value in result.items() if name not in instead}
        for name, value in level.items():
            result[name] = {**result.get(name, {}), **value} if name in _MERGED else value
    return result
