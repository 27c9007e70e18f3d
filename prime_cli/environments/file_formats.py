"""What is kept of a rollout, by evaluations and by training runs, and beside an environment."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from prime_cli.core.file_format import FileObject, OpenFileObject


class ErrorOfRollout(OpenFileObject):
    """Why a rollout failed."""

    error: str = Field(description="the kind of error")
    message: str | None = Field(default=None, description="what happened, where the library tells it")
    error_chain_repr: str = Field(default="", description="the error and what caused it")
    error_chain_str: str = Field(default="", description="the same, by their kinds alone")


class RolloutLine(OpenFileObject):
    """One rollout, a line of JSON.

    It also holds each metric under its own name, as verifiers has it, and the columns of the state that were asked for.
    """

    example_id: int | str = Field(description="the example; the rollouts of one example have the same")
    prompt: Any = Field(description="the messages before the model's first")
    completion: Any = Field(description="the messages that came after: the model's, and what it was answered")
    reward: float | int | None = Field(description="the score; it means nothing where there is an error")
    error: ErrorOfRollout | None = Field(default=None, description="why the rollout failed; null where it did not")
    answer: Any = Field(default=None, description="the answer that the example wants")
    info: Any = Field(default=None, description="what else the example has")
    task: str | None = Field(default=None, description="what the example belongs to, where the environment says it")
    metrics: dict[str, Any] = Field(default_factory=dict, description="what else was measured, by name")
    is_completed: bool = Field(default=True, description="it came to an end of its own")
    is_truncated: bool = Field(default=False, description="it was cut off by a limit on tokens or turns")
    stop_condition: str | None = Field(default=None, description="what ended it")
    timing: dict[str, Any] | None = Field(default=None, description="when its parts began and ended, in seconds")
    tool_defs: list[Any] | None = Field(default=None, description="the tools that the model could call")
    token_usage: dict[str, Any] | None = Field(default=None, description="`input_tokens`, `output_tokens` and others")
    cost: float | None = Field(default=None, description="of all attempts; left out where no price is known")
    retries: int = Field(default=0, description="how often it was run again before; left out where it was not")


class PublishedMetadata(FileObject):
    """With which environment of a hub a folder belongs together."""

    environment_id: str = Field(description="of the environment on the hub")
    owner: str
    name: str
    version: str = Field(description="that was published from here, or fetched")
    wheel_sha256: str | None = Field(default=None, description="of the wheel that was published")
    pushed_at: str | None = None
    pulled_at: str | None = None
