"""Two evaluations by example: what each example scored in both, those first that were right in one of them only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prime_cli.core.statistics import Estimate, clustered_mean
from prime_cli.evals.summary import PASS_THRESHOLD

_Z95 = 1.96
Score = tuple[int, str, float | None]


@dataclass(frozen=True)
class Pair:
    """An example with its rollouts in both; a mean is None where none of them has a reward."""

    example: str
    numbers_a: list[int]
    numbers_b: list[int]
    mean_a: float | None
    mean_b: float | None

    @property
    def difference(self) -> float | None:
        """What B has more."""
        return None if self.mean_a is None or self.mean_b is None else self.mean_b - self.mean_a

    @property
    def flipped(self) -> str:
        """`now right` or `now wrong` where the majority of rollouts passes in one of the two only."""
        if self.mean_a is None or self.mean_b is None:
            return ""
        right_a, right_b = self.mean_a >= PASS_THRESHOLD, self.mean_b >= PASS_THRESHOLD
        return "" if right_a == right_b else "now right" if right_b else "now wrong"


@dataclass(frozen=True)
class Pairing:
    """All examples of both, the flipped ones first; `difference` is over the examples scored in both."""

    pairs: list[Pair]
    difference: Estimate | None

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % interval of the difference."""
        error = self.difference.standard_error if self.difference else None
        return None if error is None else _Z95 * error

    @property
    def now_right(self) -> int:
        """How many examples only B gets right."""
        return sum(pair.flipped == "now right" for pair in self.pairs)

    @property
    def now_wrong(self) -> int:
        """How many examples only A gets right."""
        return sum(pair.flipped == "now wrong" for pair in self.pairs)


def pair_up(a: Iterable[Score], b: Iterable[Score]) -> Pairing:
    """Return the examples of two lists of (number, example, reward), paired."""
    in_a, in_b = _by_example(a), _by_example(b)
    pairs = [
        Pair(example, *_numbers(in_a, in_b, example), _mean(in_a.get(example, [])), _mean(in_b.get(example, [])))
        for example in dict.fromkeys([*in_a, *in_b])
    ]
    # In a stable order: flipped, then by how much, then those that are in one only.
    pairs.sort(key=lambda pair: (not pair.flipped, -abs(pair.difference or 0.0), pair.difference is None))
    scored = [(pair.difference, pair.example) for pair in pairs if pair.difference is not None]
    return Pairing(pairs, clustered_mean([value for value, _ in scored], [example for _, example in scored]))


def _numbers(in_a: dict[str, list[Score]], in_b: dict[str, list[Score]], example: str) -> tuple[list[int], list[int]]:
    return [score[0] for score in in_a.get(example, [])], [score[0] for score in in_b.get(example, [])]


def _by_example(scores: Iterable[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score[1], []).append(score)
    return found


def _mean(scores: Sequence[Score]) -> float | None:
    rewards = [reward for _, _, reward in scores if reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else None
