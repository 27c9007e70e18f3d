"""Intervals hold the truth as often as they say: simulated evaluations with a known answer, always the same ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from prime_cli.core.statistics import Estimate, clustered_mean, pass_at_k_estimate

Simulated = tuple[list[float], list[int]]


def rewards_of_uneven_examples(rng: random.Random, num_examples: int) -> Simulated:
    """Rewards about 0 of examples that differ more than their 1 to 6 rollouts do."""
    values, clusters = [], []
    for example in range(num_examples):
        shift = rng.gauss(0, 1)
        for _ in range(rng.randint(1, 6)):
            values.append(shift + rng.gauss(0, 0.5))
            clusters.append(example)
    return values, clusters


def passes(rng: random.Random, num_examples: int, rollouts: int = 4) -> Simulated:
    """Passes of examples whose chance is drawn from beta(4, 1), so that 0.8 of all rollouts pass."""
    chances = [rng.betavariate(4, 1) for _ in range(num_examples)]
    return [float(rng.random() < chance) for chance in chances for _ in range(rollouts)], [
        example for example in range(num_examples) for _ in range(rollouts)
    ]


def estimates(simulate: Callable[[random.Random], Simulated], number: int, seed: int) -> Iterator[Estimate]:
    rng = random.Random(seed)
    for _ in range(number):
        estimate = clustered_mean(*simulate(rng))
        assert estimate is not None
        yield estimate


def coverage(estimates: Iterator[Estimate], truth: float) -> float:
    held = [e.low is not None and e.high is not None and e.low <= truth <= e.high for e in estimates]
    return sum(held) / len(held)


def test_intervals_of_clustered_rewards_hold_the_truth_19_times_in_20() -> None:
    # 2,000 evaluations: the share that holds has a standard error of half a percent
    share = coverage(estimates(lambda rng: rewards_of_uneven_examples(rng, 20), 2000, seed=1), 0.0)
    assert 0.93 <= share <= 0.965


def test_intervals_hold_the_truth_with_five_examples_too() -> None:
    share = coverage(estimates(lambda rng: rewards_of_uneven_examples(rng, 5), 1000, seed=2), 0.0)
    assert 0.925 <= share <= 0.97


def test_an_interval_that_takes_rollouts_for_independent_would_hold_it_far_too_rarely() -> None:
    rng, held = random.Random(3), 0
    for _ in range(1000):
        values, _ = rewards_of_uneven_examples(rng, 20)
        mean = sum(values) / len(values)
        error = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
        held += abs(mean) <= 2 * error
    assert held / 1000 < 0.80


def test_intervals_of_shares_hold_the_truth_at_least_19_times_in_20() -> None:
    share = coverage(estimates(lambda rng: passes(rng, 20), 250, seed=4), 0.8)
    assert share >= 0.94
    near_one = coverage(estimates(lambda rng: passes(rng, 15, rollouts=1), 200, seed=5), 0.8)
    assert near_one >= 0.94


def test_intervals_of_pass_at_k_hold_the_truth() -> None:
    # with chances from beta(4, 1), E[1 - (1 - p)^2] = 1 - B(4, 3) / B(4, 1) = 1 - 1 / 15
    rng, found = random.Random(6), []
    for _ in range(150):
        values, _ = passes(rng, 40)
        correct = [round(sum(values[i : i + 4])) for i in range(0, len(values), 4)]
        estimate = pass_at_k_estimate(correct, [4] * 40, 2)
        assert estimate is not None
        found.append(estimate)
    assert coverage(iter(found), 1 - 1 / 15) >= 0.93
