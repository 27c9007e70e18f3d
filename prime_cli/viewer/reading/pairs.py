"""Two evaluations by example: what each example scored in both, those first that were right in one of them only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prime_cli.core.differences import Difference, paired_difference
from prime_cli.evals.summary import PASS_THRESHOLD

Score = tuple[int, str, float | None]


@dataclass(frozen=True)
class Pair:
    """An example with its rollouts in both; a mean is None where none of them has a reward.

    `clean`: no rollout failed, in neither.
    """

    example: str
    numbers_a: list[int]
    numbers_b: list[int]
    mean_a: float | None
    mean_b: float | None
    clean: bool

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
    """All examples of both, the flipped ones first.

    `difference` is that of `prime eval compare`: over the examples of both of which no rollout failed.
    """

    pairs: list[Pair]
    difference: Difference | None

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
    pairs = [_pair(example, in_a.get(example, []), in_b.get(example, [])) for example in dict.fromkeys([*in_a, *in_b])]
    # In a stable order: flipped, then by how much, then those that are in one only.
    pairs.sort(key=lambda pair: (not pair.flipped, -abs(pair.difference or 0.0), pair.difference is None))
    compared = [pair.difference for pair in pairs if pair.clean and pair.difference is not None]
    return Pairing(pairs, paired_difference(compared))


def _pair(example: str, a: list[Score], b: list[Score]) -> Pair:
    clean = all(reward is not None for _, _, reward in (*a, *b))
    return Pair(example, [score[0] for score in a], [score[0] for score in b], _mean(a), _mean(b), clean)


def _by_example(scores: Iterable[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score[1], []).append(score)
    return found


def _mean(scores: Sequence[Score]) -> float | None:
    rewards = [reward for _, _, reward in scores if reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else None
