"""Statistics of evaluations: means with honest errors and intervals, and pass@k. Pure functions."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prime_cli.core.distributions import beta_quantile, t_quantile

CONFIDENCE = 0.95
"""How often an interval holds the true mean."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and its 95 % interval; these are None when the data are too few to tell.

    `n` counts values, `groups` the clusters (examples) that they are from. Values that do not vary have no interval,
    unless they are those of a share.
    """

    mean: float
    standard_error: float | None
    n: int
    groups: int = 0
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.3f}"
        return f"{self.mean:.3f}{error}"

    @property
    def interval(self) -> str:
        """The interval for reading; empty when there is none."""
        return "" if self.low is None or self.high is None else f"[{self.low:.3f}, {self.high:.3f}]"

    def as_data(self) -> dict[str, Any]:
        """Return it as it stands in metadata.json and in JSON output."""
        return {
            "mean": self.mean,
            "standard_error": self.standard_error,
            "interval": None if self.low is None else [self.low, self.high],
            "rollouts": self.n,
            "examples": self.groups,
        }


class ClusteredValues:
    """Values added one by one, of which a count and an exact sum per cluster are kept.

    That is all that a mean with a clustered error needs, so memory grows with the clusters and not with the values, and
    the result does not depend on the order in which they came.
    """

    def __init__(self, places: dict[Hashable, int] | None = None, *, is_share: bool = True) -> None:
        """Share `places`, where each cluster stands in the columns, with other values of the same clusters.

        `is_share` says that values which all are 0, or all 1, are those of a share; else they may be of a count, of
        which values that do not vary tell nothing.
        """
        self._places = {} if places is None else places
        self._sizes, self._totals, self._lost = array("q"), array("d"), array("d")
        self._all_binary = True
        self._is_share = is_share

    def __len__(self) -> int:
        return sum(self._sizes)

    def add(self, cluster: Hashable, value: float) -> None:
        """Add one value. What rounding takes from a sum is kept beside it (Knuth's two-sum)."""
        place = self._places.setdefault(cluster, len(self._places))
        missing = place + 1 - len(self._sizes)
        if missing > 0:
            for column in (self._sizes, self._totals, self._lost):
                column.frombytes(bytes(missing * column.itemsize))
        total = self._totals[place]
        new = total + value
        part = new - total
        self._sizes[place] += 1
        self._totals[place] = new
        self._lost[place] += (total - (new - part)) + (value - part)
        self._all_binary = self._all_binary and value in (0.0, 1.0)

    def sizes_and_sums(self) -> dict[Hashable, tuple[int, float]]:
        """Return for each cluster how many values it has, and their sum."""
        columns = zip(self._places, self._sizes, self._totals, self._lost, strict=False)
        return {cluster: (size, total + lost) for cluster, size, total, lost in columns if size}

    def estimate(self) -> Estimate | None:
        """Return the mean of all values; see `clustered_mean`."""
        n = len(self)
        if n == 0:
            return None
        mean = math.fsum(itertools.chain(self._totals, self._lost)) / n
        columns = zip(self._sizes, self._totals, self._lost, strict=True)
        residuals = [math.fsum((total, lost, -size * mean)) for size, total, lost in columns if size]
        groups = len(residuals)
        if groups < 2:
            return Estimate(mean, None, n, groups)
        error = math.sqrt(groups / (groups - 1) * math.fsum(r * r for r in residuals)) / n
        if error <= _ROUNDING * abs(mean) and not (self._all_binary and self._is_share):
            return Estimate(mean, 0.0, n, groups)
        low, high = proportion_interval(mean, error, n, groups) if self._all_binary else t_interval(mean, error, groups)
        return Estimate(mean, error, n, groups, low, high)


def clustered_mean(values: Iterable[float], clusters: Iterable[Hashable]) -> Estimate | None:
    """Return the mean of `values` with a standard error clustered by `clusters` (the example of each rollout).

    Rollouts of one example are not independent; treating them so makes an error too small. With residuals summed within
    each of G clusters, Var = G/(G-1) * sum_g (sum_i (x_gi - mean))^2 / n^2 (Liang and Zeger 1986, as in Miller 2024,
    arXiv:2411.00640, eq. 4, with the small-sample factor). With one rollout per example this is the usual error of the
    mean. The interval is Student's with G - 1 degrees of freedom; where every value is 0 or 1, that of
    `proportion_interval`. Returns None without values.
    """
    kept = ClusteredValues()
    for value, cluster in zip(values, clusters, strict=True):
        kept.add(cluster, value)
    return kept.estimate()


def t_interval(mean: float, error: float, groups: int) -> tuple[float, float]:
    """Return Student's interval about a mean of `groups` independent clusters."""
    half = _t(groups - 1) * error
    return mean - half, mean + half


def proportion_interval(mean: float, error: float, n: int, groups: int) -> tuple[float, float]:
    """Return the interval of a share that was estimated from clusters, after Korn and Graubard (1998).

    The exact interval of Clopper and Pearson for as many independent trials as would have this error, corrected for the
    degrees of freedom and never more than `n`. Near 0 and 1 Student's interval is too narrow, and with no error at all
    (all passed, none passed) it would be a point; here 10 of 10 examples give [0.692, 1].
    """
    if error == 0:
        trials = float(groups if mean in (0.0, 1.0) else n)
    else:
        trials = mean * (1 - mean) / error**2
        trials = min(float(n), trials * (_t(n - 1) / _t(groups - 1)) ** 2)
    right, wrong, tail = trials * mean, trials * (1 - mean), (1 - CONFIDENCE) / 2
    low = beta_quantile(tail, right, wrong + 1) if right > 0 else 0.0
    high = beta_quantile(1 - tail, right + 1, wrong) if wrong > 0 else 1.0
    return low, high


def pass_at_k(correct: Sequence[int], total: Sequence[int], k: int) -> float | None:
    """Return the unbiased chance that at least one of k rollouts of an example is correct, averaged over examples.

    1 - C(n - c, k) / C(n, k) for each example with n >= k rollouts, c of them correct (Chen et al. 2021,
    arXiv:2107.03374, eq. 1). None when no example has k rollouts.
    """
    found = pass_at_k_estimate(correct, total, k)
    return found.mean if found else None


def pass_all_k(correct: Sequence[int], total: Sequence[int], k: int) -> float | None:
    """Return the unbiased chance that all of k rollouts of an example are correct, averaged over examples.

    C(c, k) / C(n, k) for each example with n >= k rollouts, c of them correct. None when no example has k rollouts.
    """
    found = pass_all_k_estimate(correct, total, k)
    return found.mean if found else None


def pass_at_k_estimate(correct: Sequence[int], total: Sequence[int], k: int) -> Estimate | None:
    """Return `pass_at_k` with its interval over examples."""
    return _mean_chance(correct, total, k, lambda c, n: 1 - math.comb(n - c, k) / math.comb(n, k))


def pass_all_k_estimate(correct: Sequence[int], total: Sequence[int], k: int) -> Estimate | None:
    """Return `pass_all_k` with its interval over examples."""
    return _mean_chance(correct, total, k, lambda c, n: math.comb(c, k) / math.comb(n, k))


def powers_of_two_up_to(limit: int) -> list[int]:
    """Return 1, 2, 4, ... up to `limit`."""
    return [1 << exponent for exponent in range(limit.bit_length()) if 1 << exponent <= limit]


def _mean_chance(correct: Sequence[int], total: Sequence[int], k: int, chance: Any) -> Estimate | None:
    """Return the mean over examples of a chance of each; with one cluster per example, `n` counts its rollouts."""
    chances = [chance(c, n) for c, n in zip(correct, total, strict=True) if n >= k]
    rollouts = sum(n for n in total if n >= k)
    groups = len(chances)
    if not groups:
        return None
    mean = math.fsum(chances) / groups
    if groups < 2:
        return Estimate(mean, None, rollouts, groups)
    error = math.sqrt(math.fsum((one - mean) ** 2 for one in chances) / (groups - 1) / groups)
    return Estimate(mean, error, rollouts, groups, *proportion_interval(mean, error, rollouts, groups))


def _t(degrees: int) -> float:
    return t_quantile(0.5 + CONFIDENCE / 2, degrees)
