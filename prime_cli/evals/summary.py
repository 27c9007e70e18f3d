"""From the figures of rollouts to what is shown and kept: averages with their intervals, pass@k, tables by tag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prime_cli.core.statistics import (
    ClusteredValues,
    Estimate,
    pass_all_k_estimate,
    pass_at_k_estimate,
    powers_of_two_up_to,
)
from prime_cli.evals.figures import RolloutFigures

PASS_THRESHOLD = 0.5
_MOST_VALUES_OF_A_TAG = 100
"""A tag with more values than this sorts nothing (it may be an identifier), and is given up."""


@dataclass(frozen=True)
class EvalSummary:
    """What came out. Averages are over the rollouts without an error; `reward` is None when there is none.

    `errors` counts each kind of failure, the most frequent first. `pass_at` and `pass_all` are by k, `by_tag` holds the
    reward of each value of each tag that has more than one. `cost` is None where no price is known; `stopped` says why
    not everything was run.
    """

    path: Path
    reward: Estimate | None
    metrics: dict[str, Estimate]
    pass_at: dict[str, Estimate]
    pass_all: dict[str, Estimate]
    num_rollouts: int
    num_errors: int
    errors: dict[str, int]
    usage: dict[str, float]
    seconds: float
    by_tag: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    cost: float | None = None
    stopped: str | None = None

    @property
    def pass_at_k(self) -> dict[str, float]:
        """The chance that at least one of k rollouts passes, by k."""
        return {k: estimate.mean for k, estimate in self.pass_at.items()}

    @property
    def pass_all_k(self) -> dict[str, float]:
        """The chance that all of k rollouts pass, by k."""
        return {k: estimate.mean for k, estimate in self.pass_all.items()}

    def rows(self) -> dict[str, Estimate]:
        """Return every estimate by the name under which it is shown, the tags' as `task=sums`."""
        rows = {"reward": self.reward} if self.reward else {}
        rows |= self.metrics
        rows |= {f"pass@{k}": estimate for k, estimate in self.pass_at.items()}
        rows |= {f"pass^{k}": estimate for k, estimate in self.pass_all.items() if k != "1"}
        for tag, values in self.by_tag.items():
            rows |= {f"{tag}={value}": estimate for value, estimate in values.items()}
        return rows

    def estimates(self) -> dict[str, Any]:
        """Return every estimate with its interval and counts, as metadata.json and JSON output hold them."""
        return {
            "reward": self.reward.as_data() if self.reward else None,
            "metrics": {name: estimate.as_data() for name, estimate in self.metrics.items()},
            "pass_at_k": {k: estimate.as_data() for k, estimate in self.pass_at.items()},
            "pass_all_k": {k: estimate.as_data() for k, estimate in self.pass_all.items()},
            "by_tag": {
                tag: {value: estimate.as_data() for value, estimate in values.items()}
                for tag, values in self.by_tag.items()
            },
        }

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
            "estimates": self.estimates(),
            "cost": self.cost,
            "stopped": self.stopped,
            "seconds": self.seconds,
            "path": str(self.path),
        }


class EvalTally:
    """Takes the figures of rollouts one by one, and keeps only sums per example."""

    def __init__(self) -> None:
        self.num_rollouts = 0
        self.num_errors = 0
        self.cost = 0.0
        self.num_priced = 0
        self._reward_sum = 0.0
        self._errors: Counter[str] = Counter()
        self._examples: dict[Hashable, int] = {}
        self._reward = ClusteredValues(self._examples)
        self._passed = ClusteredValues(self._examples)
        self._metrics: dict[str, ClusteredValues] = {}
        self._tags: dict[str, dict[str, ClusteredValues]] = {}
        self._tokens: dict[str, list[float]] = {"input_tokens": [0, 0.0], "output_tokens": [0, 0.0]}

    @property
    def mean_reward(self) -> float | None:
        """The mean so far, at no cost; None while nothing has a reward."""
        good = self.num_rollouts - self.num_errors
        return self._reward_sum / good if good else None

    def add(self, rollout: RolloutFigures) -> None:
        """Count one rollout; one with an error is counted, and neither scored nor averaged."""
        self.num_rollouts += 1
        if rollout.cost is not None:
            self.cost += rollout.cost
            self.num_priced += 1
        for name, sums in self._tokens.items():
            tokens = getattr(rollout, name)
            if tokens is not None:
                sums[0] += 1
                sums[1] += tokens
        if rollout.error is not None:
            self.num_errors += 1
            self._errors[rollout.error] += 1
            return
        example = rollout.example_id
        self._reward_sum += rollout.reward
        self._reward.add(example, rollout.reward)
        self._passed.add(example, float(rollout.reward >= PASS_THRESHOLD))
        for name, measured in rollout.metrics.items():
            self._metrics.setdefault(name, ClusteredValues(self._examples, is_share=False)).add(example, measured)
        for tag, values in rollout.tags.items():
            table = self._tags.setdefault(tag, {})
            for value in values:
                if value in table or len(table) <= _MOST_VALUES_OF_A_TAG:
                    table.setdefault(value, ClusteredValues(self._examples)).add(example, rollout.reward)

    def summary(self, path: Path, seconds: float) -> EvalSummary:
        """Return the averages of what was added."""
        by_example = self._passed.sizes_and_sums().values()
        total, correct = [size for size, _ in by_example], [round(passed) for _, passed in by_example]
        most = max(total, default=0)
        ks = powers_of_two_up_to(most) if most > 1 else []
        chances = ((str(k), pass_at_k_estimate(correct, total, k), pass_all_k_estimate(correct, total, k)) for k in ks)
        known = [(k, some, every) for k, some, every in chances if some and every]
        return EvalSummary(
            path=path,
            reward=self._reward.estimate(),
            metrics=_estimates(self._metrics),
            pass_at={k: some for k, some, _ in known},
            pass_all={k: every for k, _, every in known},
            num_rollouts=self.num_rollouts,
            num_errors=self.num_errors,
            errors=dict(self._errors.most_common()),
            usage=self._usage(),
            seconds=seconds,
            cost=self.cost if self.num_priced else None,
            by_tag={
                tag: dict(sorted(_estimates(table).items()))
                for tag, table in self._tags.items()
                if 1 < len(table) <= _MOST_VALUES_OF_A_TAG
            },
        )

    def _usage(self) -> dict[str, float]:
        """Return tokens per rollout, over the rollouts that counted them."""
        if not all(count for count, _ in self._tokens.values()):
            return {}
        return {name: total / count for name, (count, total) in self._tokens.items()}


def summarize(path: Path, figures: Iterable[RolloutFigures], seconds: float) -> EvalSummary:
    """Return the averages of the rollouts."""
    tally = EvalTally()
    for rollout in figures:
        tally.add(rollout)
    return tally.summary(path, seconds)


def _estimates(columns: dict[str, ClusteredValues]) -> dict[str, Estimate]:
    found = {name: values.estimate() for name, values in columns.items()}
    return {name: estimate for name, estimate in found.items() if estimate is not None}
