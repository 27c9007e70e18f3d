"""What statistics need of a rollout: a few numbers, kept when the messages are long on disk."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from prime_cli.environments.rollout_errors import error_text


@dataclass(frozen=True)
class RolloutFigures:
    """The figures of one rollout. One with an `error` has a reward and metrics that mean nothing."""

    example_id: Hashable
    reward: float
    metrics: Mapping[str, float]
    error: str | None
    input_tokens: float | None = None
    output_tokens: float | None = None


def figures_of(rollout: Mapping[str, Any]) -> RolloutFigures:
    """Return the figures of a line of `results.jsonl`. A reward that is no finite number counts as an error."""
    error = error_text(rollout["error"]) if rollout.get("error") else None
    reward = rollout.get("reward")
    if error is None and not (isinstance(reward, int | float) and math.isfinite(reward)):
        error = f"the reward is not a number: {reward!r}"
    metrics = rollout.get("metrics") or {}
    usage = rollout.get("token_usage") or {}
    return RolloutFigures(
        example_id=rollout.get("example_id"),
        reward=0.0 if error is not None else float(reward or 0.0),
        metrics={name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
        error=error,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
    )
