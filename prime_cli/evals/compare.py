"""Whether one evaluation differs from another: pairs their examples, and tests the differences. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prime_cli.core.differences import SIGNIFICANCE, Difference, holm, paired_difference, unpaired_difference
from prime_cli.core.errors import BadInput
from prime_cli.evals.scores import PASSED, REWARD, ExampleScores, Scores
from prime_cli.evals.summary import PASS_THRESHOLD

_TOLD_SETTINGS = ("model", "env_args", "sampling_args", "rollouts_per_example", "version_info")


@dataclass(frozen=True)
class ExampleChange:
    """An example whose score is another on the other side. `flipped`: it passed on one side only."""

    example_id: Hashable
    first: float
    second: float
    first_rollouts: int
    second_rollouts: int
    flipped: bool

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True)
class Pairing:
    """Which examples were compared, and which were not and why.

    Args:
        pairs: of both sides, without a failed rollout and with a score.
        with_errors: left out, because a rollout failed on either side.
        without_score: left out, because no rollout of a side has the metric.
        other_answer: left out, because the two sides have other answers under one number: these are other examples.
        only_first: left out, because only the first side ran them.
        other_prompts: how many of the pairs were asked in other words.
    """

    pairs: int
    with_errors: int = 0
    without_score: int = 0
    other_answer: int = 0
    only_first: int = 0
    only_second: int = 0
    other_prompts: int = 0


@dataclass(frozen=True)
class TagDifference:
    """The difference over the examples with one value of a tag; `p` is corrected for the number of values."""

    value: str
    first: float
    second: float
    difference: Difference
    p: float | None


@dataclass(frozen=True)
class Comparison:
    """A second evaluation held against a first one.

    Means of the two sides are over the examples compared, each example counting once. `p` is corrected for the number
    of evaluations that are held against the first. `with_errors_as_zero` is the difference over all common examples,
    were each failed rollout worth 0; None when none failed. `limit_of_rollouts` is what the smallest effect shown would
    come down to with any number of rollouts of the same examples; None where examples have a single rollout.
    """

    first: Scores
    second: Scores
    pairing: Pairing | None
    first_mean: float
    second_mean: float
    difference: Difference
    p: float | None
    changes: list[ExampleChange]
    with_errors_as_zero: Difference | None = None
    by_tag: list[TagDifference] = field(default_factory=list)
    limit_of_rollouts: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether chance is an unlikely reason, and the interval, too, leaves 0 out."""
        return self.p is not None and self.p < SIGNIFICANCE and not self.difference.includes_zero

    @property
    def flipped(self) -> list[ExampleChange]:
        """The examples that passed on one side only."""
        return [change for change in self.changes if change.flipped]

    def settings_that_differ(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings that are not the same on both sides: what the difference may be due to."""
        sides = self.first.metadata, self.second.metadata
        pairs = {name: (sides[0].get(name), sides[1].get(name)) for name in _TOLD_SETTINGS}
        return {name: (one, other) for name, (one, other) in pairs.items() if one != other}


def compare_all(evaluations: Sequence[Scores], *, unpaired: bool = False, by_tag: bool = False) -> list[Comparison]:
    """Hold every evaluation against the first one; their p-values are corrected for their number (Holm).

    Raises:
        BadInput: there are fewer than two, or two cannot be paired.
    """
    if len(evaluations) < 2:
        raise BadInput("a comparison needs two evaluations", hint="`prime eval list` shows those there are")
    compared = [compare(evaluations[0], other, unpaired=unpaired, by_tag=by_tag) for other in evaluations[1:]]
    adjusted = _corrected([one.difference.p for one in compared])
    return [replace(one, p=p) for one, p in zip(compared, adjusted, strict=True)]


def compare(first: Scores, second: Scores, *, unpaired: bool = False, by_tag: bool = False) -> Comparison:
    """Compare two evaluations, paired by example unless `unpaired`.

    Raises:
        BadInput: they are of other environments or other examples, or no example is left to compare.
    """
    if unpaired:
        return _unpaired(first, second)
    for what in ("environment", "split"):
        sides = getattr(first, what), getattr(second, what)
        if sides[0] != sides[1]:
            raise BadInput(
                f"examples cannot be paired: the {what} is {sides[0]} in {first.directory.path} and {sides[1]} in "
                f"{second.directory.path}",
                hint="`--unpaired` compares the means of different examples, and shows only large differences",
            )
    return _paired(first, second, by_tag=by_tag)


def _paired(first: Scores, second: Scores, *, by_tag: bool) -> Comparison:
    pairs, pairing = _pair(first, second)
    if not pairs:
        raise BadInput(f"no example is left to compare: {left_out(pairing)}", hint=_hint(pairing))
    values = {number: (one.mean, other.mean) for number, (one, other) in pairs.items()}
    difference = _difference([b - a for a, b in values.values()])
    changes = [
        ExampleChange(number, a, b, pairs[number][0].count, pairs[number][1].count, _flips(first.metric, a, b))
        for number, (a, b) in values.items()
        if a != b
    ]
    changes.sort(key=lambda change: (not change.flipped, -abs(change.difference), str(change.example_id)))
    return Comparison(
        first=first,
        second=second,
        pairing=pairing,
        first_mean=_mean([a for a, _ in values.values()]),
        second_mean=_mean([b for _, b in values.values()]),
        difference=difference,
        p=difference.p,
        changes=changes,
        with_errors_as_zero=_with_errors_as_zero(first, second) if pairing.with_errors else None,
        by_tag=_by_tag(pairs) if by_tag else [],
        limit_of_rollouts=_limit_of_rollouts(list(pairs.values()), difference),
    )


def _pair(first: Scores, second: Scores) -> tuple[dict[Hashable, tuple[ExampleScores, ExampleScores]], Pairing]:
    pairs: dict[Hashable, tuple[ExampleScores, ExampleScores]] = {}
    with_errors = without_score = other_answer = other_prompts = 0
    for number in first.examples.keys() & second.examples.keys():
        one, other = first.examples[number], second.examples[number]
        if one.answer != other.answer:
            other_answer += 1
        elif one.errors or other.errors:
            with_errors += 1
        elif not one.count or not other.count:
            without_score += 1
        else:
            pairs[number] = one, other
            other_prompts += one.question != other.question
    ordered = {number: pairs[number] for number in first.examples if number in pairs}
    return ordered, Pairing(
        pairs=len(pairs),
        with_errors=with_errors,
        without_score=without_score,
        other_answer=other_answer,
        only_first=len(first.examples.keys() - second.examples.keys()),
        only_second=len(second.examples.keys() - first.examples.keys()),
        other_prompts=other_prompts,
    )


def left_out(pairing: Pairing) -> str:
    """Say which examples are not among the pairs; empty when all are."""
    reasons = [
        (pairing.with_errors, "with a failed rollout"),
        (pairing.without_score, "without the metric"),
        (pairing.other_answer, "with another answer on the other side"),
        (pairing.only_first, "only in the first"),
        (pairing.only_second, "only in the second"),
    ]
    return ", ".join(f"{count} {reason}" for count, reason in reasons if count)


def _hint(pairing: Pairing) -> str:
    if pairing.with_errors:
        return "run the failed rollouts again with `prime eval run ... --resume FOLDER --retry-errors`"
    if pairing.other_answer:
        return "the environment draws other examples each time: give it a seed with --env-args, or use `--unpaired`"
    return "run both on the same examples, or use `--unpaired`"


def _unpaired(first: Scores, second: Scores) -> Comparison:
    sides = [[one.mean for one in scores.examples.values() if one.count] for scores in (first, second)]
    difference = unpaired_difference(*sides)
    if difference is None:
        raise BadInput("no example is left to compare: every rollout of a side failed")
    return Comparison(
        first=first,
        second=second,
        pairing=None,
        first_mean=_mean(sides[0]),
        second_mean=_mean(sides[1]),
        difference=difference,
        p=difference.p,
        changes=[],
    )


def _by_tag(pairs: dict[Hashable, tuple[ExampleScores, ExampleScores]]) -> list[TagDifference]:
    groups: dict[str, list[tuple[float, float]]] = {}
    for one, other in pairs.values():
        for value in one.tags or ("(none)",):
            groups.setdefault(value, []).append((one.mean, other.mean))
    found = {value: _difference([b - a for a, b in group]) for value, group in sorted(groups.items())}
    adjusted = _corrected([difference.p for difference in found.values()])
    return [
        TagDifference(value, _mean([a for a, _ in groups[value]]), _mean([b for _, b in groups[value]]), difference, p)
        for (value, difference), p in zip(found.items(), adjusted, strict=True)
    ]


def _limit_of_rollouts(pairs: Sequence[tuple[ExampleScores, ExampleScores]], difference: Difference) -> float | None:
    """Return the smallest effect were the means of examples known, and only the choice of examples left to chance."""
    noise = [one.variance_of_mean for pair in pairs for one in pair]
    known = [variance for variance in noise if variance is not None]
    if len(known) < len(noise) or difference.smallest_effect is None or not difference.standard_error:
        return None
    of_rollouts = sum(known) / len(pairs) ** 2
    of_examples = max(0.0, difference.standard_error**2 - of_rollouts)
    return difference.smallest_effect * math.sqrt(of_examples) / difference.standard_error


def _with_errors_as_zero(first: Scores, second: Scores) -> Difference | None:
    """Return the difference over all common examples with each failed rollout counted as 0, for rewards and passes."""
    if first.metric not in (REWARD, PASSED):
        return None
    common = [
        (first.examples[number], second.examples[number])
        for number in first.examples
        if number in second.examples and first.examples[number].answer == second.examples[number].answer
    ]
    return paired_difference([_mean_with_zeros(other) - _mean_with_zeros(one) for one, other in common])


def _mean_with_zeros(example: ExampleScores) -> float:
    return example.total / (example.count + example.errors)


def _difference(values: Sequence[float]) -> Difference:
    difference = paired_difference(values)
    assert difference is not None
    return difference


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    known = [p for p in p_values if p is not None]
    adjusted = iter(holm(known))
    return [None if p is None else next(adjusted) for p in p_values]


def _flips(metric: str, one: float, other: float) -> bool:
    return metric in (REWARD, PASSED) and (one >= PASS_THRESHOLD) != (other >= PASS_THRESHOLD)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
