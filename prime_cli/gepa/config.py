"""The configuration of a prompt optimisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import AliasChoices, Field, model_validator

from prime_cli.core.config_file import StrictModel
from prime_cli.environments.workspace import ENVIRONMENTS
from prime_cli.evals.endpoints import ENDPOINTS_FILE


class GepaEnvironmentConfig(StrictModel):
    """One environment: a local or installed name, a folder, or `owner/name[@version]`.

    With several, examples are drawn in equal shares, and all of them get the same system prompt.
    """

    id: str = Field(min_length=1, validation_alias=AliasChoices("id", "env_id"))
    args: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasChoices("args", "env_args"))
    extra_env_kwargs: dict[str, Any] = Field(default_factory=dict, description="set on the loaded environment")


class SearchConfig(StrictModel):
    """How the search goes. A call is one rollout.

    `max_calls` is never exceeded: an iteration begins only while it fits into what is left. The held-out comparison
    takes `num_test` calls for each of its two prompts beyond it. Sizes of sets that are not given shrink to what the
    environment has; those that are given must be there.
    """

    max_calls: int = Field(default=500, ge=1)
    minibatch_size: int = Field(default=3, ge=1, description="examples that one reflection looks at")
    perfect_score: float | None = Field(
        default=None,
        description="the highest reward: a minibatch that has it is left alone, a prompt that has it ends the search",
    )
    state_columns: list[str] = Field(default_factory=list, description="state that the reflection model sees, too")
    num_train: int = Field(default=100, ge=1, description="examples to reflect on")
    num_val: int = Field(default=50, ge=1, description="examples that every accepted prompt is measured on")
    num_test: int = Field(
        default=50, ge=0, description="held-out examples that the best prompt is compared on at the end; 0: none"
    )
    max_concurrent: int = Field(default=32, ge=1, description="rollouts at once")
    num_workers: int = Field(default=1, ge=1, description="processes of each environment")
    max_retries: int = Field(default=3, ge=0, description="of a rollout or reflection that the model did not answer")
    max_cost: float | None = Field(
        default=None, gt=0, description="what both models may cost together, by the `price` of their endpoints"
    )
    seed: int = 0


class GepaConfig(StrictModel):
    """One optimisation of a system prompt.

    `model` runs the rollouts and `reflection_model`, unless given the same one, writes new prompts: aliases of
    endpoints.toml, URLs, folders of weights, or with `api_base_url` names of models there. The search begins with the
    environment's own system prompt, or with the text in the file `initial_prompt`. `[sampling]` is for the rollouts.
    """

    model: str = Field(min_length=1)
    reflection_model: str | None = Field(default=None, min_length=1)
    env: list[GepaEnvironmentConfig] = Field(min_length=1)
    gepa: SearchConfig = SearchConfig()
    sampling: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasChoices("sampling", "sampling_args"))
    initial_prompt: Path | None = None
    endpoints_path: Path = ENDPOINTS_FILE
    env_dir_path: Path = Field(default=ENVIRONMENTS, description="where the environments of the workspace lie")
    api_base_url: str | None = None
    api_key_var: str | None = Field(default=None, description="the environment variable that holds the API key")
    run_dir: Path | None = Field(default=None, description="the folder of the run, instead of one below `outputs`")
    verbose: bool = Field(default=False, description="show the messages of the gepa package, too")
    save_results: bool = Field(default=True, description="false: nothing is kept, the prompt is printed")

    @model_validator(mode="before")
    @classmethod
    def _one_environment_may_be_a_table(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("env"), dict):
            return {**values, "env": [values["env"]]}
        return values

    @model_validator(mode="after")
    def _a_comparison_needs_two(self) -> Self:
        if self.gepa.num_test == 1:
            raise ValueError("gepa.num_test 1 is too few to compare on: take at least 2, or 0 for no comparison")
        return self

    @property
    def label(self) -> str:
        """How the environments are called together."""
        names = [Path(env.id.rstrip("/").split("@")[0]).name for env in self.env]
        return "+".join(dict.fromkeys(names))
