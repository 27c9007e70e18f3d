"""From the figures of rollouts to what is shown and kept: averages with their errors, pass@k, metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.statistics import Estimate, clustered_mean, pass_all_k, pass_at_k, powers_of_two_up_to
from prime_cli.evals.figures import RolloutFigures

PASS_THRESHOLD = 0.5


@dataclass(frozen=True)
class EvalSummary:
    """What came out. Averages are over the rollouts without an error; `reward` is None when there is none.

    `errors` counts each kind of failure, the most frequent first.
    """

    path: Path
    reward: Estimate | None
    metrics: dict[str, Estimate]
    pass_at_k: dict[str, float]
    pass_all_k: dict[str, float]
    num_rollouts: int
    num_errors: int
    errors: dict[str, int]
    usage: dict[str, float]
    seconds: float

    def as_data(self) -> dict[str, Any]:
        """Return what `--output json` prints."""
        return {
            "reward_mean": self.reward.mean if self.reward else None,
            "reward_standard_error": self.reward.standard_error if self.reward else None,
            "num_rollouts": self.num_rollouts,
            "num_errors": self.num_errors,
            "errors": self.errors,
            "metrics": {name: estimate.mean for name, estimate in self.metrics.items()},
            "pass_at_k": self.pass_at_k,
            "seconds": self.seconds,
            "path": str(self.path),
        }


def summarize(path: Path, figures: Sequence[RolloutFigures], seconds: float) -> EvalSummary:
    """Return the averages of the rollouts; those with an error are counted, and neither scored nor averaged."""
    clean = [rollout for rollout in figures if rollout.error is None]
    rewards = [rollout.reward for rollout in clean]
    examples = [rollout.example_id for rollout in clean]
    errors = Counter(rollout.error for rollout in figures if rollout.error is not None)
    correct, total = _successes(rewards, examples)
    return EvalSummary(
        path=path,
        reward=clustered_mean(rewards, examples),
        metrics=_metrics(clean),
        pass_at_k=_by_k(pass_at_k, correct, total),
        pass_all_k=_by_k(pass_all_k, correct, total),
        num_rollouts=len(figures),
        num_errors=len(figures) - len(clean),
        errors=dict(errors.most_common()),
        usage=_usage(figures),
        seconds=seconds,
    )


def _metrics(clean: Sequence[RolloutFigures]) -> dict[str, Estimate]:
    estimates = {}
    for name in dict.fromkeys(name for rollout in clean for name in rollout.metrics):
        with_it = [rollout for rollout in clean if name in rollout.metrics]
        estimate = clustered_mean([r.metrics[name] for r in with_it], [r.example_id for r in with_it])
        if estimate is not None:
            estimates[name] = estimate
    return estimates


def _successes(rewards: Sequence[float], examples: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Return for each example how many of its rollouts passed, and how many there are."""
    total = Counter(examples)
    correct = Counter(example for reward, example in zip(rewards, examples, strict=True) if reward >= PASS_THRESHOLD)
    return [correct[example] for example in total], list(total.values())


def _by_k(chance: Any, correct: Sequence[int], total: Sequence[int]) -> dict[str, float]:
    most = max(total, default=0)
    if most < 2:
        return {}
    return {str(k): chance(correct, total, k) for k in powers_of_two_up_to(most)}


def _usage(figures: Sequence[RolloutFigures]) -> dict[str, float]:
    """Return tokens per rollout, over the rollouts that counted them."""
    sent = [rollout.input_tokens for rollout in figures if rollout.input_tokens is not None]
    sampled = [rollout.output_tokens for rollout in figures if rollout.output_tokens is not None]
    if not sent or not sampled:
        return {}
    return {"input_tokens": sum(sent) / len(sent), "output_tokens": sum(sampled) / len(sampled)}
