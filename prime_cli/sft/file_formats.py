"""What fine-tuning reads, and the one file that it writes otherwise than a run of reinforcement learning."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from prime_cli.core.file_format import FileObject, OpenFileObject


class DemonstrationRow(OpenFileObject):
    """A demonstration: `messages`, or `prompt` and `completion`. Rows may have more; files may be `.parquet`."""

    messages: Any = Field(
        default=None, description="a list of messages with `role` and `content`, or that as JSON text"
    )
    prompt: Any = Field(default=None, description="a text, which is the user's, or a list of messages")
    completion: Any = Field(default=None, description="a text, which is the assistant's, or a list of messages")
    tools: Any = Field(default=None, description="what the assistant may call, a list or JSON text")
    tool_defs: Any = Field(default=None, description="the same, where there are no `tools`")


class SFTSummaryFile(FileObject):
    """`summary.json` of a fine-tuning run, written last. Losses are in nats per token that is learnt."""

    path: str
    weights: str = Field(description="the folder of the last weights")
    steps: int
    loss: float
    validation_loss: float | None
    seconds: float


class OrderState(FileObject):
    """`order.json` in a checkpoint of fine-tuning: which demonstration comes next."""

    epoch: int = Field(description="from 0")
    position: int = Field(description="demonstrations of it that were shown")
