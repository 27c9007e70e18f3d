"""What statistics need of a rollout: a few numbers, kept when the messages are long on disk."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.environments.rollout_errors import error_text
from prime_cli.evals.tags import USUAL_TAGS, tags_of


@dataclass(frozen=True)
class RolloutFigures:
    """The figures of one rollout. One with an `error` has a reward and metrics that mean nothing."""

    example_id: Hashable
    reward: float
    metrics: Mapping[str, float]
    error: str | None
    input_tokens: float | None = None
    output_tokens: float | None = None
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cost: float | None = None


def figures_of(rollout: Mapping[str, Any], tags: Iterable[str] = USUAL_TAGS) -> RolloutFigures:
    """Return the figures of a line of `results.jsonl`, and the values of those `tags` that it has.

    A reward that is no finite number counts as an error.
    """
    error = error_text(rollout["error"]) if rollout.get("error") else None
    reward = rollout.get("reward")
    if error is None and not _is_number(reward):
        error = f"the reward is not a number: {reward!r}"
    metrics = rollout.get("metrics") or {}
    usage = rollout.get("token_usage") or {}
    return RolloutFigures(
        example_id=rollout.get("example_id"),
        reward=0.0 if error is not None else float(reward or 0.0),
        metrics={name: float(value) for name, value in metrics.items() if _is_number(value)},
        error=error,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        tags=tags_of(rollout, tags),
        cost=rollout["cost"] if _is_number(rollout.get("cost")) else None,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
