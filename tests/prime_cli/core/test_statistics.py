"""Statistics against cases worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from prime_cli.core.statistics import clustered_mean, pass_at_k, powers_of_two_up_to


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
