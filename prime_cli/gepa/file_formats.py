"""What the files of `prime gepa run` hold; candidates, frontier and metadata are in verifiers' `verifiers.gepa.v1`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from prime_cli.core.file_format import FileObject, OpenFileObject


class CandidateInfo(FileObject):
    """What is known of a candidate."""

    schema_version: str = Field(description="`verifiers.gepa.v1`")
    eval_kind: str = Field(description="`gepa`")
    sample_type: str = Field(description="`gepa_candidate`")
    optimization_target: str = Field(description="`system_prompt`")
    candidate_idx: int = Field(description="from 0, the prompt that the search began with")
    is_best: bool
    system_prompt: str
    system_prompt_sha256: str
    diff_from_initial: str = Field(description="from the first prompt to this one")
    parent_candidate_idxs: list[int] = Field(description="the candidates that it was made from")
    val_subscores: dict[str, float] = Field(description="by the row of the validation set")
    num_val_examples: int
    discovery_metric_calls: int = Field(description="calls that were made before it was accepted")


class CandidateLine(FileObject):
    """A candidate prompt, in the form of a rollout so that it can be uploaded as one."""

    example_id: int = Field(description="its number")
    reward: float = Field(description="its mean over the validation examples")
    score: float = Field(description="the same")
    info: CandidateInfo


class BestCandidate(FileObject):
    """A candidate that no other did better than on this example."""

    candidate_idx: int
    system_prompt_sha256: str
    score: float


class FrontierLine(FileObject):
    """The best candidates of one validation example."""

    schema_version: str = Field(description="`verifiers.gepa.v1`")
    valset_row: int
    best_score: float
    num_best_candidates: int
    best_candidates: list[BestCandidate]


class ProposalLine(FileObject):
    """One iteration, also one that led to nothing."""

    iteration: int
    parent_candidate_idx: int | None = Field(description="the candidate that was reflected on")
    candidate_idx: int | None = Field(description="what became of the proposal; null where it was not accepted")
    accepted: bool
    skipped: str | None = Field(description="why there was no proposal")
    train_examples: list[int] = Field(description="rows of the training set that the minibatch was of")
    parent_scores: list[float] = Field(description="of the parent on the minibatch")
    scores: list[float] = Field(description="of the proposal on it")
    system_prompt: str | None = Field(description="the proposal")


class HeldOutScore(FileObject):
    """How a prompt did on one example."""

    reward: float | None
    error: str | None


class HeldOutLine(FileObject):
    """The first and the best prompt on one example that the search has not seen."""

    example_id: Any = Field(description="as the environment has it")
    example: str = Field(description="the environment and a hash of the row")
    initial: HeldOutScore
    best: HeldOutScore


class JournalLine(OpenFileObject):
    """A call that was paid for: a rollout, or an answer of the reflection model, with what came of it."""

    key: list[str] = Field(description="what was asked: its kind, and hashes of prompt and example")
    number: int = Field(description="the how-manieth call of this key, from 0")


class GepaExamples(FileObject):
    """Which examples are in which set, each as the environment and a hash of the row."""

    train: list[str]
    val: list[str]
    test: list[str]


class GepaMetadata(FileObject):
    """Settings and summary, replaced whole. What has a default is there once the run came to its end."""

    schema_version: str = Field(description="`verifiers.gepa.v1`")
    eval_kind: str = Field(description="`gepa`")
    framework: str = Field(description="`verifiers`")
    optimizer: str = Field(description="`gepa`")
    optimization_target: str = Field(description="`system_prompt`")
    env_id: str
    model: str
    reflection_model: str
    num_candidates: int
    best_idx: int = Field(description="the candidate with the highest mean over the validation examples")
    best_score: float
    total_metric_calls: int
    initial_prompt_sha256: str
    best_prompt_sha256: str
    system_prompt_path: str = Field(description="of the best prompt, in this folder")
    results_path: str
    completed_at: str | None = Field(description="null until the end")
    config: dict[str, Any] = Field(description="what was asked for, whole")
    held_out: dict[str, Any] | None = Field(default=None, description="the comparison on the held-out examples")
    verdict: str | None = Field(default=None, description="what the comparison says, in words")
    usage: dict[str, Any] = Field(default_factory=dict, description="calls and tokens, of `model` and `reflection`")
    cost_usd: float | None = None
    num_errors: int = Field(default=0, description="rollouts that failed")
    seconds: float = 0.0
