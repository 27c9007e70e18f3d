"""Student's t and the beta distribution against published tables, and against R (`qt`, `pt`, `qbeta`)."""

from __future__ import annotations

import math

import pytest

from prime_cli.core.distributions import beta_cdf, beta_quantile, t_quantile, t_two_sided


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.7764), (0.975, 9, 2.2622), (0.9, 4, 1.5332), (0.995, 30, 2.7500),
     (0.975, 120, 1.9799), (0.975, 10**7, 1.95996), (0.5, 3, 0.0), (0.025, 4, -2.7764)],
)  # fmt: skip
def test_quantiles_of_t_are_those_of_the_tables(probability: float, degrees: float, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=5e-5)


def test_the_tails_of_t_are_those_that_can_be_written_down() -> None:
    # with 1 degree of freedom P(|T| >= t) = 1 - 2/pi atan(t); with 2 it is 1 - t / sqrt(2 + t^2)
    for t in (0.0, 0.3, 1.0, 5.0, 40.0):
        assert t_two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
        assert t_two_sided(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
    assert t_two_sided(math.inf, 5) == 0


def test_quantile_and_tail_of_t_undo_each_other() -> None:
    for degrees in (1, 2.5, 17, 4000):
        for probability in (0.6, 0.9, 0.999):
            tail = t_two_sided(t_quantile(probability, degrees), degrees)
            assert tail == pytest.approx(2 * (1 - probability), rel=1e-9)


def test_the_beta_distribution_is_the_tail_of_the_binomial() -> None:
    # P(X >= 3) of 10 trials at 0.2 is I_0.2(3, 8)
    tail = sum(math.comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(3, 11))
    assert beta_cdf(0.2, 3, 8) == pytest.approx(tail, abs=1e-14)
    assert beta_cdf(0.3, 1, 1) == pytest.approx(0.3)
    assert (beta_cdf(0, 2, 2), beta_cdf(1, 2, 2)) == (0, 1)


def test_quantiles_of_beta_give_the_exact_interval_of_the_textbooks() -> None:
    # Clopper and Pearson: 5 of 10 are between 0.187 and 0.813
    assert beta_quantile(0.025, 5, 6) == pytest.approx(0.18708602844739855)
    assert beta_quantile(0.975, 6, 5) == pytest.approx(1 - 0.18708602844739855)
