"""Statistics against cases worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from prime_cli.core.statistics import (
    ClusteredValues,
    clustered_mean,
    pass_all_k_estimate,
    pass_at_k,
    pass_at_k_estimate,
    powers_of_two_up_to,
)


def test_one_rollout_per_example_gives_the_usual_error_of_the_mean() -> None:
    estimate = clustered_mean([1.0, 0.0, 1.0, 1.0], ["a", "b", "c", "d"])
    assert estimate is not None
    assert estimate.mean == 0.75
    # sample variance 0.25, n = 4
    assert estimate.standard_error == pytest.approx(math.sqrt(0.25 / 4))


def test_rollouts_that_repeat_their_example_do_not_make_the_error_smaller() -> None:
    once = clustered_mean([1.0, 0.0, 1.0, 1.0], list("abcd"))
    repeated = clustered_mean([1.0] * 5 + [0.0] * 5 + [1.0] * 10, [e for e in "abcd" for _ in range(5)])
    assert once is not None
    assert repeated is not None
    assert repeated.standard_error == pytest.approx(once.standard_error)


def test_the_error_matches_the_spread_of_means_over_many_samples() -> None:
    rng = random.Random(0)
    means, errors = [], []
    for _ in range(400):
        values, clusters = [], []
        for example in range(30):
            shift = rng.gauss(0, 1)
            values += [shift + rng.gauss(0, 0.5) for _ in range(4)]
            clusters += [example] * 4
        estimate = clustered_mean(values, clusters)
        assert estimate is not None
        assert estimate.standard_error is not None
        means.append(estimate.mean)
        errors.append(estimate.standard_error)
    spread = math.sqrt(sum(m * m for m in means) / len(means))
    assert sum(errors) / len(errors) == pytest.approx(spread, rel=0.1)


def test_too_little_data_claims_no_error() -> None:
    assert clustered_mean([], []) is None
    estimate = clustered_mean([0.5, 0.7], ["a", "a"])
    assert estimate is not None
    assert estimate.standard_error is None


def test_pass_at_k_is_the_unbiased_chance() -> None:
    # 2 of 4 correct: 1 - C(2,2)/C(4,2) = 5/6; none correct: 0
    assert pass_at_k([2], [4], 2) == pytest.approx(5 / 6)
    assert pass_at_k([2, 0], [4, 4], 2) == pytest.approx(5 / 12)
    assert pass_at_k([1], [1], 2) is None


def test_powers_of_two() -> None:
    assert powers_of_two_up_to(8) == [1, 2, 4, 8]
    assert powers_of_two_up_to(3) == [1, 2]


def test_the_interval_is_students_with_one_degree_of_freedom_less_than_clusters() -> None:
    # textbook: 5 values with mean 3 and sample variance 2.5; t(0.975, 4) = 2.7764
    estimate = clustered_mean([1.0, 2.0, 3.0, 4.0, 5.0], "abcde")
    assert estimate is not None
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert (estimate.low, estimate.high) == (pytest.approx(3 - half, abs=1e-5), pytest.approx(3 + half, abs=1e-5))
    assert (estimate.n, estimate.groups) == (5, 5)
    twice = clustered_mean([1.0, 2.0, 3.0, 4.0, 5.0] * 2, "abcde" * 2)
    assert twice is not None
    assert (twice.low, twice.n, twice.groups) == (pytest.approx(estimate.low), 10, 5)


def test_shares_have_the_exact_interval_and_all_passed_is_no_certainty() -> None:
    half = clustered_mean([1.0] * 5 + [0.0] * 5, range(10))
    # Clopper and Pearson of 5 of 10 would be [0.187, 0.813]; the estimated error has a factor 10/9 in it
    assert half is not None
    assert half.low == pytest.approx(0.171, abs=2e-3)
    every = clustered_mean([1.0] * 20, [example for example in range(10) for _ in range(2)])
    assert every is not None
    # ten examples, not twenty: 0.025 ** (1 / 10)
    assert (every.low, every.high) == (pytest.approx(0.025**0.1), 1.0)
    none = clustered_mean([0.0] * 10, range(10))
    assert none is not None
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025**0.1))


def test_the_order_of_values_changes_no_bit() -> None:
    rng = random.Random(1)
    values = [(rng.randrange(20), rng.gauss(0, 1) * 10 ** rng.randrange(-3, 4)) for _ in range(500)]
    estimates = []
    for _ in range(20):
        rng.shuffle(values)
        kept = ClusteredValues()
        for cluster, value in values:
            kept.add(cluster, value)
        estimates.append(kept.estimate())
    assert len({estimate.mean for estimate in estimates if estimate}) == 1
    assert len(values) == len(kept) == 500


def test_pass_chances_have_intervals_over_examples() -> None:
    some, every = pass_at_k_estimate([2, 0, 4], [4, 4, 4], 2), pass_all_k_estimate([2, 0, 4], [4, 4, 4], 2)
    assert some is not None
    assert every is not None
    assert (some.mean, every.mean) == (pytest.approx((5 / 6 + 0 + 1) / 3), pytest.approx((1 / 6 + 0 + 1) / 3))
    assert some.low is not None
    assert some.high is not None
    assert 0 <= some.low < some.mean < some.high <= 1
    alone = pass_at_k_estimate([1], [2], 1)
    assert alone is not None
    assert (alone.mean, alone.low, alone.groups) == (0.5, None, 1)


def test_counts_that_do_not_vary_have_no_interval() -> None:
    turns = ClusteredValues(is_share=False)
    for example in range(10):
        turns.add(example, 1.0)
    estimate = turns.estimate()
    assert estimate is not None
    assert (estimate.mean, estimate.standard_error, estimate.low, estimate.interval) == (1.0, 0.0, None, "")
    same = clustered_mean([0.7] * 8, range(8))
    assert same is not None
    assert same.low is None
