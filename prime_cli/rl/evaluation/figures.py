"""From the rollouts of an evaluation to its figures. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from prime_cli.core.statistics import clustered_mean, pass_all_k, pass_at_k, powers_of_two_up_to

PASSED = 0.5
"""The reward from which on a rollout has passed."""

Rollout = Mapping[str, Any]


def eval_figures(rollouts: Sequence[Rollout]) -> dict[str, float | int]:
    """Return the figures of one evaluation, by names without its own.

    Rollouts with an error are counted, and neither scored nor averaged. `avg@k` is the mean over examples of the mean
    reward of their k rollouts, `pass@k` the chance that one of k passes, `pass^k` that all k do, of as many as examples
    have without an error; a rollout passes from a reward of 0.5 on.
    """
    clean = [rollout for rollout in rollouts if not is_error(rollout)]
    by_example: dict[Any, list[float]] = defaultdict(list)
    for rollout in clean:
        by_example[rollout.get("example_id")].append(float(rollout["reward"]))
    values: dict[str, float | int] = {"rollouts": len(rollouts), "errors": len(rollouts) - len(clean)}
    values |= _reward(by_example)
    lengths = [
        float(n) for rollout in clean if (n := (rollout.get("token_usage") or {}).get("output_tokens")) is not None
    ]
    if lengths:
        values |= {"completion_tokens/mean": statistics.fmean(lengths), "completion_tokens/max": max(lengths)}
    if clean:
        values["truncated"] = sum(bool(rollout.get("is_truncated")) for rollout in clean) / len(clean)
    for name in sorted({name for rollout in clean for name in (rollout.get("metrics") or {})}):
        column = [(rollout.get("metrics") or {}).get(name) for rollout in clean]
        known = [float(value) for value in column if isinstance(value, int | float)]
        if known:
            values[f"metrics/{name}"] = statistics.fmean(known)
    kinds = Counter(_kind(rollout) for rollout in rollouts if is_error(rollout))
    return values | {f"error/{kind}": count for kind, count in kinds.items()}


def is_error(rollout: Rollout) -> bool:
    """Say whether a rollout ended with an error; a reward that is no finite number counts as one."""
    reward = rollout.get("reward")
    return bool(rollout.get("error")) or not (isinstance(reward, int | float) and math.isfinite(reward))


def _reward(by_example: Mapping[Any, Sequence[float]]) -> dict[str, float | int]:
    rewards = [reward for group in by_example.values() for reward in group]
    clusters = [example for example, group in by_example.items() for _ in group]
    estimate = clustered_mean(rewards, clusters)
    if estimate is None:
        return {"reward/n": 0}
    values: dict[str, float | int] = {"reward/mean": estimate.mean, "reward/n": estimate.n}
    if estimate.standard_error is not None:
        values["reward/standard_error"] = estimate.standard_error
    if estimate.low is not None and estimate.high is not None:
        values |= {"reward/low": estimate.low, "reward/high": estimate.high}
    total = [len(group) for group in by_example.values()]
    correct = [sum(reward >= PASSED for reward in group) for group in by_example.values()]
    most = max(total)
    values[f"avg@{most}"] = statistics.fmean([statistics.fmean(group) for group in by_example.values()])
    for k in powers_of_two_up_to(most):
        some, every = pass_at_k(correct, total, k), pass_all_k(correct, total, k)
        if some is not None and every is not None:
            values |= {f"pass@{k}": some, f"pass^{k}": every}
    return values


def _kind(rollout: Rollout) -> str:
    error = rollout.get("error")
    if isinstance(error, Mapping):
        return str(error.get("error") or "Error")
    return type(error).__name__ if error else "InvalidReward"
