"""What the files of a training run hold; `run_directory.py` says where they lie."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from prime_cli.core.file_format import FileObject, OpenFileObject
from prime_cli.environments.file_formats import RolloutLine


class MetricsLine(OpenFileObject):
    """The figures of one step from one process, a line of JSON; the names of the figures are in docs/metrics.md."""

    step: int
    source: str = Field(description="`orchestrator`, `trainer`, or `eval`")
    time: float = Field(description="when it was written, in seconds since 1970")


class TrainedRolloutLine(RolloutLine):
    """A rollout as evaluations keep it, with where it belongs; its tokens are in the batch, not here."""

    env: str = Field(description="the environment, by its label in the run")
    group: int = Field(description="its group; groups count from 0 in the order in which they were opened")
    policy_version: int = Field(description="of the policy that its group was opened under")


class BatchFacts(FileObject):
    """`batch.json`: the step that a batch is for."""

    step: int
    facts: dict[str, Any] = Field(description="`origins`: of each sample its `environment`, `group` and `example`")


class BatchArrays(FileObject):
    """`arrays.safetensors`: the samples of a batch, N tokens one sample after the other, M samples."""

    lengths: Any = Field(description="[M] int64: the tokens of each sample")
    temperatures: Any = Field(description="[M] float32: at which each was sampled")
    token_ids: Any = Field(description="[N] int64")
    logprobs: Any = Field(description="[N] float32: of the policy that sampled the token; 0 where none did")
    advantages: Any = Field(description="[N] float32")
    rl_weights: Any = Field(
        description="[N] float32: how much the token counts in the policy gradient; 0 is not at all"
    )
    ce_weights: Any = Field(description="[N] float32: the same for cross-entropy")
    ref_kl_weights: Any = Field(description="[N] float32: the same for the pull of a teacher")
    ref_logprobs: Any = Field(description="[N] float32: of the teacher")


class OrchestratorState(FileObject):
    """`orchestrator.json`, beside a batch and in a checkpoint: the orchestrator as of the cutting of that batch."""

    step: int = Field(description="the batch that was cut last")
    opened: int = Field(description="groups that were ever opened")
    chooser: dict[str, Any] = Field(description="what draws the environment of a group")
    sources: dict[str, Any] = Field(description="by environment: its `sampler` and its `algorithm`")
    owed: list[dict[str, Any]] = Field(
        description="groups that were opened and are in no batch: `number`, `source`, `example`; they are opened again"
    )


class CheckpointFacts(FileObject):
    """`checkpoint.json`, which makes a folder a checkpoint."""

    format: int = Field(description="1")
    step: int
    steps_taken: int = Field(description="optimizer steps")
    files: dict[str, int] = Field(description="the size in bytes of every other file; a folder that differs is torn")


class StartOfAttempt(FileObject):
    """Where an attempt at a run began."""

    checkpoint: str = Field(description="the folder of the checkpoint")
    step: int
    weights_only: bool = Field(description="a new run that began with the weights of it")


class AttemptFile(FileObject):
    """`attempt.json`: which attempt at the run this is."""

    number: int = Field(description="from 1")
    start: StartOfAttempt | None = Field(description="null: with the weights of the model")


class StatusFile(FileObject):
    """`status/NAME.json`: what a process does, or waits for."""

    doing: str
    since: float = Field(description="in seconds since 1970")


class ReadyFile(FileObject):
    """`status/NAME_ready.json`: a server answers."""

    url: str
    pid: int


class FailureFile(FileObject):
    """`status/NAME_failure.json`: why a process gave up, in words for the user."""

    message: str
    hint: str | None


class RunSummaryFile(FileObject):
    """`summary.json` of a run of reinforcement learning, written last."""

    path: str
    weights: str = Field(description="the folder of the last weights")
    steps: int
    first_reward: float = Field(description="the mean reward of the first step")
    last_reward: float = Field(description="that of the last")
    seconds: float


class TokensLine(FileObject):
    """A line of `token_exports/step_S/rank_R.jsonl`: one sequence of the batch. Lists have an entry for each token.

    What is not known of a token, or is not finite, is null.
    """

    schema_: int = Field(alias="schema", description="1")
    step: int
    rank: int
    micro_step: int = Field(description="the row that it was in")
    sequence: int = Field(description="its place in the batch")
    environment: str | None = None
    group: int | None = None
    example: Any = None
    token_ids: list[int]
    position_ids: list[int]
    loss_mask: list[bool] = Field(description="whether any part of the loss counts the token")
    advantages: list[float | None]
    rl_weights: list[float | None]
    ce_weights: list[float | None]
    ref_kl_weights: list[float | None]
    ref_logprobs: list[float | None]
    inference_logprobs: list[float | None] = Field(description="of the server that sampled it")
    trainer_logprobs: list[float | None] = Field(description="of the trainer, before the step")
    log_ratio: list[float | None] = Field(description="the trainer's less the server's")
    ratio: list[float | None]
    probability_delta: list[float | None] = Field(description="the difference of the probabilities")
    mismatch_kl: list[float | None] = Field(description="ratio - log_ratio - 1")
    entropies: list[float | None] = Field(description="of the policy at this place, in nats")
    dropped: list[bool] = Field(description="moved too far to be trained on")
