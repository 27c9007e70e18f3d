"""When a gain is one."""

from __future__ import annotations

import pytest

from prime_cli.gepa.comparison import compare
from prime_cli.gepa.examples import Example
from prime_cli.gepa.rollouts import Outcome


def outcomes(*scores: float | None) -> list[Outcome]:
    return [
        Outcome(Example(0, {}, str(i)), score or 0.0, None if score is not None else "failed", {})
        for i, score in enumerate(scores)
    ]


def test_the_difference_is_paired_by_example() -> None:
    # differences 0.1, 0.2, 0.3, 0.2, 0.15, 0.25: mean 0.2, standard error 0.0289, t(5) = 2.571; all six up: p = 2 / 64
    compared = compare(outcomes(0.1, 0.9, 0.2, 0.5, 0.4, 0.6), outcomes(0.2, 1.1, 0.5, 0.7, 0.55, 0.85))
    assert compared is not None
    assert compared.difference.mean == pytest.approx(0.2)
    assert (compared.difference.low, compared.difference.high) == pytest.approx((0.1258, 0.2742), abs=1e-4)
    assert compared.difference.p == pytest.approx(2 / 64)
    assert compared.verdict == "gain"


def test_an_interval_that_includes_0_is_no_gain_and_one_below_it_a_loss() -> None:
    mixed = compare(outcomes(0, 1, 0, 1), outcomes(1, 1, 0, 0.9))
    assert mixed is not None
    assert mixed.verdict == "no gain shown"
    worse = compare(outcomes(1.0, 0.9, 1.0, 0.9, 1.0, 0.8), outcomes(0.1, 0.2, 0.1, 0.0, 0.1, 0.1))
    assert worse is not None
    assert worse.verdict == "loss"


@pytest.mark.parametrize(("flipped", "verdict"), [(1, "no gain shown"), (5, "no gain shown"), (6, "gain")])
def test_a_few_examples_that_pass_now_are_no_gain_yet(flipped: int, verdict: str) -> None:
    # of 50 examples: p is 2 / 2^flipped, whatever an interval of shares may say
    compared = compare(outcomes(*[0] * 50), outcomes(*[1] * flipped, *[0] * (50 - flipped)))
    assert compared is not None
    assert compared.verdict == verdict


def test_an_example_that_failed_under_either_prompt_is_counted_and_left_out() -> None:
    compared = compare(outcomes(0.0, None, 0.0), outcomes(1.0, 1.0, None))
    assert compared is not None
    assert (compared.difference.n, compared.num_failed, compared.verdict) == (1, 2, "no gain shown")
    assert compare(outcomes(None), outcomes(1.0)) is None
