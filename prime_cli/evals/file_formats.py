"""What the files of an evaluation hold."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from prime_cli.core.file_format import FileObject


class VersionInfo(FileObject):
    """What an evaluation ran with. The commits are null; verifiers' own tools write them."""

    vf_version: str | None = Field(description="of verifiers")
    vf_commit: str | None
    env_version: str | None = Field(description="of the environment's package; null for a folder that is not installed")
    env_commit: str | None


class EvalMetadata(FileObject):
    """The settings and averages of an evaluation, replaced whole as it goes on.

    Averages are over the rollouts without an error.
    """

    env_id: str = Field(description="the environment as it was asked for")
    env_args: dict[str, Any] = Field(description="what its `load_environment` got")
    model: str = Field(description="the model as its server knows it, or its folder")
    base_url: str = Field(description="of the first server that was asked")
    num_examples: int = Field(description="as asked for; -1 is all of them")
    rollouts_per_example: int
    shuffle: bool = Field(description="whether the examples were drawn at random")
    shuffle_seed: int | None
    sampling_args: dict[str, Any] = Field(description="what went with every request")
    date: str = Field(description="when it began, or last went on")
    time: float = Field(description="seconds since then")
    avg_reward: float | None = Field(description="null while every rollout failed")
    avg_metrics: dict[str, float]
    avg_error: float = Field(description="the share of the rollouts that failed")
    pass_at_k: dict[str, float] = Field(description="by k: the chance that one of k rollouts passes")
    pass_all_k: dict[str, float] = Field(description="by k: the chance that all of k rollouts pass")
    pass_threshold: float = Field(description="the least reward that passes")
    usage: dict[str, float] | None = Field(description="tokens per rollout: `input_tokens`, `output_tokens`")
    cost: float | None = Field(description="of all rollouts; null where no price is known")
    stopped: str | None = Field(description="why not everything was run; null where it was, or was interrupted")
    version_info: VersionInfo
    state_columns: list[str] = Field(description="what of the state every line keeps")
    tools: Any = Field(description="the tools that the model could call")
    split: str = Field(description="`eval` or `train`")
    name: str | None = Field(
        default=None, description="what a file of evaluations calls it; left out where it does not"
    )
    extra_env_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="what the environment was given beside its arguments; left out where nothing"
    )
    reward_standard_error: float | None = Field(description="of `avg_reward`, clustered by example")
    estimates: dict[str, Any] = Field(
        description="`reward`, `metrics`, `pass_at_k`, `pass_all_k` and `by_tag`, each score with its `mean`, "
        "`standard_error`, `interval` of 95 %, and the numbers of `rollouts` and `examples` that it is of"
    )
    num_rollouts: int = Field(description="that are on disk")
    num_errors: int = Field(description="those of them that failed")
    total_rollouts: int = Field(description="that there will be")
    max_concurrent: int
    num_workers: int
