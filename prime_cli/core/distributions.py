"""Student's t and the beta distribution, which intervals and tests are read from.

Written out because the base installation has no numerical library, and because `scipy.stats` takes longer to import
than a comparison takes to compute. The tests hold these against published tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
_MAX_TERMS = 10_000
_HALVINGS = 200


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b).

    By its continued fraction (Abramowitz and Stegun 26.5.8), evaluated from the front by the method of Lentz, on that
    side of the mean where it converges quickly.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _beta_fraction(x, a, b)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x at which `beta_cdf` is `probability`."""
    return _bisect(lambda x: beta_cdf(x, a, b) < probability, 0.0, 1.0)


def t_two_sided(t: float, degrees: float) -> float:
    """Return the chance that |T| is at least |t|, for T with `degrees` of freedom."""
    if math.isinf(t):
        return 0.0
    return beta_cdf(degrees / (degrees + t * t), degrees / 2, 0.5)


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the t below which T with `degrees` of freedom falls with this probability."""
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    outside = 2 * (1 - probability)
    high = 1.0
    while t_two_sided(high, degrees) > outside:
        high *= 2
    return _bisect(lambda t: t_two_sided(t, degrees) > outside, 0.0, high)


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Return where `is_below` turns false, to the last bit that halving finds."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _beta_fraction(x: float, a: float, b: float) -> float:
    numerator, denominator = 1.0, _away_from_zero(1 - (a + b) * x / (a + 1))
    denominator = 1 / denominator
    value = denominator
    for m in range(1, _MAX_TERMS):
        before = value
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 / _away_from_zero(1 + term * denominator)
            numerator = _away_from_zero(1 + term / numerator)
            value *= numerator * denominator
        if abs(value - before) < 1e-15 * abs(value):
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
