"""Whether two measurements differ: paired and unpaired tests, and what a comparison of this size could show."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from prime_cli.core.distributions import beta_cdf, t_quantile, t_two_sided
from prime_cli.core.statistics import CONFIDENCE

POWER = 0.8
SIGNIFICANCE = 1 - CONFIDENCE
_SMALL = 30
_FEWEST = 6
_MOST_DRAWN = 2_000
_ENUMERATED = 16
DRAWS = 20_000
_QUANTILES = (0.5 + CONFIDENCE / 2, POWER)
_MOST_EXAMPLES = 1_000_000


@dataclass(frozen=True)
class Difference:
    """A mean difference between two sides over examples, with its 95 % interval and what speaks against chance.

    Args:
        n: examples; of unpaired sides, of both together.
        degrees: degrees of freedom of the t distribution.
        p_t: of the t test; None where the differences do not vary, so that there is none.
        p_flip: of the sign-flip permutation test; None for unpaired sides, and where so many examples vary that the t
            test is as good.
        flips_exact: whether `p_flip` counts all ways to flip signs, and not a sample of them.
        decided_by_flips: whether `p` is `p_flip`: few examples, or differences that are only -1, 0 and 1.
    """

    mean: float
    standard_error: float | None
    low: float | None
    high: float | None
    n: int
    degrees: float | None
    p_t: float | None
    is_paired: bool = True
    p_flip: float | None = None
    flips_exact: bool = False
    decided_by_flips: bool = False

    @property
    def p(self) -> float | None:
        """The p-value to go by."""
        return self.p_flip if self.decided_by_flips or self.p_t is None else self.p_t

    @property
    def test(self) -> str:
        """The name of the test that `p` is of."""
        if self.p is None:
            return "none"
        if not self.decided_by_flips and self.p_t is not None:
            return "paired t test" if self.is_paired else "t test"
        return "exact sign-flip test" if self.flips_exact else "sign-flip test"

    @property
    def includes_zero(self) -> bool:
        """Whether the interval reaches over 0."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high

    @property
    def is_too_small(self) -> bool:
        """Whether no result whatever could be told from chance: of five examples all agree once in 16 times."""
        return self.is_paired and 2 / 2**self.n > SIGNIFICANCE

    @property
    def smallest_effect(self) -> float | None:
        """The smallest true difference that a comparison like this one would show four times in five.

        None where none would be shown: fewer than six examples have no pattern of signs that is rare enough.
        """
        if not self.standard_error or self.degrees is None or self.is_too_small:
            return None
        return sum(t_quantile(q, self.degrees) for q in _QUANTILES) * self.standard_error

    @property
    def examples_to_decide(self) -> int | None:
        """How many examples in all would show a difference like this one four times in five; None where none would."""
        if not self.standard_error or self.mean == 0:
            return None
        ratio = self.standard_error * math.sqrt(self.n) / abs(self.mean)
        # With the normal distribution the number can be written down; with t it is a few more.
        n = max(_FEWEST, math.ceil((sum(map(NormalDist().inv_cdf, _QUANTILES)) * ratio) ** 2))
        if n > _MOST_EXAMPLES:
            return None
        while sum(t_quantile(q, n - 1) for q in _QUANTILES) * ratio > math.sqrt(n):
            n += 1
        return n

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON output has it."""
        return {
            "difference": self.mean,
            "standard_error": self.standard_error,
            "interval": None if self.low is None else [self.low, self.high],
            "examples": self.n,
            "degrees_of_freedom": self.degrees,
            "p": self.p,
            "test": self.test,
            "p_t": self.p_t,
            "p_sign_flip": self.p_flip,
            "sign_flip_exact": self.flips_exact,
            "smallest_effect": self.smallest_effect,
            "examples_to_decide": self.examples_to_decide,
        }


def paired_difference(differences: Sequence[float], *, seed: int = 0, draws: int = DRAWS) -> Difference | None:
    """Return the mean of the differences of each example between two sides, and whether it is one.

    Each difference is one of means over the rollouts of an example, so that examples are the independent units. The
    interval and `p_t` are those of the paired t test with n - 1 degrees of freedom. None without examples.
    """
    n = len(differences)
    if n == 0:
        return None
    mean = math.fsum(differences) / n
    binary = all(value in (-1.0, 0.0, 1.0) for value in differences)
    by_flips = n < _SMALL or binary
    p_flip, exact = None, False
    if binary or n <= _MOST_DRAWN:
        p_flip, exact = sign_flip_p(differences, seed=seed, draws=draws)
    error = 0.0
    if n > 1:
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in differences) / (n - 1) / n)
    if error <= 1e-12 * max(map(abs, differences), default=0.0) or error == 0:
        p_flip, exact = sign_flip_p(differences, seed=seed, draws=draws)
        return Difference(mean, None, None, None, n, None, None, True, p_flip, exact, decided_by_flips=True)
    found = _with_t(mean, error, n, float(n - 1), is_paired=True)
    return replace(found, p_flip=p_flip, flips_exact=exact, decided_by_flips=by_flips)


def unpaired_difference(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Return the difference of the means of two sets of other examples, by Welch's t test. None if one is empty."""
    if not first or not second:
        return None
    n = len(first) + len(second)
    means, parts = [], []
    for side in (first, second):
        means.append(math.fsum(side) / len(side))
        squares = math.fsum((value - means[-1]) ** 2 for value in side)
        parts.append(squares / (len(side) - 1) / len(side) if len(side) > 1 else math.nan)
    mean, variance = means[1] - means[0], sum(parts)
    if math.isnan(variance) or variance == 0:
        return Difference(mean, None, None, None, n, None, None, is_paired=False)
    degrees = variance**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True))
    return _with_t(mean, math.sqrt(variance), n, degrees, is_paired=False)


def sign_flip_p(differences: Sequence[float], *, seed: int = 0, draws: int = DRAWS) -> tuple[float, bool]:
    """Return how often a mean as far from 0 comes about when the sign of each difference is a coin's, and if exactly.

    Without an effect the sides of an example could be exchanged: all patterns of signs are as likely (Fisher 1935).
    All patterns are counted where the differences are all as large (then it is McNemar's exact test) or few are not 0;
    else `draws` are drawn by `seed`, the seen one counted among them.
    """
    moved = [value for value in differences if value != 0]
    if not moved:
        return 1.0, True
    if len({abs(value) for value in moved}) == 1:
        n, up = len(moved), sum(value > 0 for value in moved)
        least = min(up, n - up)
        return min(1.0, 2 * beta_cdf(0.5, n - least, least + 1)), True  # the binomial tail up to `least`
    seen = abs(math.fsum(moved))
    limit = seen - 1e-9 * math.fsum(map(abs, moved))  # patterns that tie with the seen one must not fall to rounding
    if len(moved) <= _ENUMERATED:
        patterns = _signed_sums(moved)
        return sum(abs(one) >= limit for one in patterns) / len(patterns), True
    padded = [*moved, *[0.0] * (-len(moved) % 8)]
    tables = [_signed_sums(padded[start : start + 8]) for start in range(0, len(padded), 8)]
    coins = random.Random(seed)  # noqa: S311 - no secret
    extreme = 1
    for _ in range(draws):
        extreme += abs(sum(map(list.__getitem__, tables, coins.randbytes(len(tables))))) >= limit
    return extreme / (draws + 1), False


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979): one below 0.05 is so in all together."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def _with_t(mean: float, error: float, n: int, degrees: float, *, is_paired: bool) -> Difference:
    half = t_quantile(0.5 + CONFIDENCE / 2, degrees) * error
    return Difference(
        mean, error, mean - half, mean + half, n, degrees, t_two_sided(mean / error, degrees), is_paired=is_paired
    )


def _signed_sums(values: Sequence[float]) -> list[float]:
    """Return the sum of the values under each pattern of signs; bit i of an index flips value i."""
    sums = [0.0]
    for value in values:
        sums = [one + value for one in sums] + [one - value for one in sums]
    return sums
