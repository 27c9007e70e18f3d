"""Statistics of evaluations: means with honest standard errors, and pass@k. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error; `standard_error` is None when n is too small to tell."""

    mean: float
    standard_error: float | None
    n: int

    def __str__(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.3f}"
        return f"{self.mean:.3f}{error}"


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate | None:
    """Return the mean of `values` with a standard error clustered by `clusters` (the example of each rollout).

    Rollouts of one example are not independent; treating them so makes an error too small. With residuals summed within
    each of G clusters, Var = G/(G-1) * sum_g (sum_i (x_gi - mean))^2 / n^2 (Liang and Zeger 1986, as in Miller 2024,
    arXiv:2411.00640, eq. 4, with the small-sample factor). With one rollout per example this is the usual error of the
    mean. Returns None without values.
    """
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + (value - mean)
    groups = len(sums)
    if groups < 2:
        return Estimate(mean, None, n)
    variance = groups / (groups - 1) * math.fsum(s * s for s in sums.values()) / (n * n)
    return Estimate(mean, math.sqrt(variance), n)


def pass_at_k(correct: Sequence[int], total: Sequence[int], k: int) -> float | None:
    """Return the unbiased chance that at least one of k rollouts of an example is correct, averaged over examples.

    1 - C(n - c, k) / C(n, k) for each example with n >= k rollouts, c of them correct (Chen et al. 2021,
    arXiv:2107.03374, eq. 1). None when no example has k rollouts.
    """
    chances = [1 - math.comb(n - c, k) / math.comb(n, k) for c, n in zip(correct, total, strict=True) if n >= k]
    return math.fsum(chances) / len(chances) if chances else None


def pass_all_k(correct: Sequence[int], total: Sequence[int], k: int) -> float | None:
    """Return the unbiased chance that all of k rollouts of an example are correct, averaged over examples.

    C(c, k) / C(n, k) for each example with n >= k rollouts, c of them correct. None when no example has k rollouts.
    """
    chances = [math.comb(c, k) / math.comb(n, k) for c, n in zip(correct, total, strict=True) if n >= k]
    return math.fsum(chances) / len(chances) if chances else None


def powers_of_two_up_to(limit: int) -> list[int]:
    """Return 1, 2, 4, ... up to `limit`."""
    return [1 << exponent for exponent in range(limit.bit_length()) if 1 << exponent <= limit]
