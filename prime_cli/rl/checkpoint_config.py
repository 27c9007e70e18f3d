"""The tables that say which steps of a run are kept: checkpoints to go on from, weights and adapters to use."""

from __future__ import annotations

from pydantic import Field

from prime_cli.core.config_file import StrictModel


class CheckpointsConfig(StrictModel):
    """What a run can go on from: after every `interval` steps, and at the end, the whole state and the weights.

    The weights are written in Hugging Face layout beside each checkpoint, and kept and removed together with it. Of the
    checkpoints that `keep_last`, `keep_interval` and `keep_best` name, none is removed; the last one never is.
    """

    interval: int = Field(default=20, ge=0, description="0: at the end only")
    keep_last: int = Field(default=2, ge=0, description="how many of the newest are kept; 0 keeps all")
    keep_interval: int | None = Field(default=None, ge=1, description="steps that it divides are kept for good")
    keep_best: str | None = Field(
        default=None, min_length=1, description="the step with the highest value of this figure is kept"
    )


class AdaptersConfig(StrictModel):
    """Adapters alone, in PEFT layout: after every `interval` steps, beside those that come with each checkpoint."""

    interval: int = Field(default=0, ge=0, description="0: with each checkpoint, and at the end")
    keep_last: int = Field(default=0, ge=0, description="how many of the newest are kept; 0 keeps all")


def steps_to_drop(
    steps: list[int], *, keep_last: int, keep_interval: int | None = None, best: int | None = None
) -> list[int]:
    """Return which of `steps` are no longer wanted, ascending; the newest is always wanted."""
    newest = sorted(steps)[-keep_last:]  # -0 is the whole list
    return sorted(
        step
        for step in set(steps) - set(newest)
        if step != best and (keep_interval is None or step % keep_interval != 0)
    )
