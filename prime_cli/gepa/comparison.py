"""Whether the best prompt is better than the initial one, on examples that the search never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prime_cli.core.differences import SIGNIFICANCE, Difference, paired_difference
from prime_cli.core.statistics import Estimate, clustered_mean
from prime_cli.gepa.rollouts import Outcome

Verdict = Literal["gain", "loss", "no gain shown"]


@dataclass(frozen=True)
class Comparison:
    """Both prompts on the same held-out examples.

    Examples on which either rollout failed are counted, and not compared.
    """

    initial: Estimate
    best: Estimate
    difference: Difference
    num_failed: int

    @property
    def verdict(self) -> Verdict:
        """A gain is only one when neither the interval reaches down to 0 nor chance is a likely reason."""
        difference = self.difference
        low, high = difference.low, difference.high
        includes_0 = low is not None and high is not None and low <= 0 <= high
        if difference.p is None or difference.p >= SIGNIFICANCE or includes_0:
            return "no gain shown"
        return "gain" if difference.mean > 0 else "loss"

    def as_data(self) -> dict[str, Any]:
        """Return the figures for files and `--output json`."""
        return {
            "verdict": self.verdict,
            "initial_mean": self.initial.mean,
            "best_mean": self.best.mean,
            "num_failed": self.num_failed,
            **self.difference.as_data(),
        }


def compare(initial: Sequence[Outcome], best: Sequence[Outcome]) -> Comparison | None:
    """Return the comparison, paired by example, or None when no example has a score under both prompts."""
    both = [(a, b) for a, b in zip(initial, best, strict=True) if a.error is None and b.error is None]
    examples = [a.example.key for a, _ in both]
    before = clustered_mean([a.score for a, _ in both], examples)
    after = clustered_mean([b.score for _, b in both], examples)
    difference = paired_difference([b.score - a.score for a, b in both])
    if before is None or after is None or difference is None:
        return None
    return Comparison(before, after, difference, len(initial) - len(both))
