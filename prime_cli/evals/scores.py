"""What a comparison needs of an evaluation: the scores of each example, read line by line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.statistics import ClusteredValues, Estimate
from prime_cli.environments.resolve import parse_environment_id
from prime_cli.evals.figures import figures_of
from prime_cli.evals.store import EvalDirectory, parsed_rollout
from prime_cli.evals.summary import PASS_THRESHOLD, EvalSummary, summarize
from prime_cli.evals.tags import USUAL_TAGS

REWARD = "reward"
PASSED = "pass"
"""The share of rollouts with a reward of `PASS_THRESHOLD` or more, as if it were a metric."""


@dataclass
class ExampleScores:
    """The rollouts of one example: how many have a score, sums of it and its squares, how many failed, what was asked.

    `answer` and `question` are digests, which tell whether an example of the same number elsewhere is the same.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    errors: int = 0
    answer: str = ""
    question: str = ""
    tags: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over the rollouts without an error."""
        return self.total / self.count

    @property
    def variance_of_mean(self) -> float | None:
        """How much the mean would vary, were the example run again; None with a single rollout."""
        if self.count < 2:
            return None
        spread = max(0.0, self.squares - self.total * self.mean)
        return spread / (self.count - 1) / self.count


@dataclass
class Scores:
    """The scores of one evaluation: by example, all together, by the tag asked for, and how many of each size."""

    directory: EvalDirectory
    metadata: Mapping[str, Any]
    metric: str
    examples: dict[Hashable, ExampleScores] = field(default_factory=dict)
    values: ClusteredValues = field(default_factory=ClusteredValues)
    by_tag: dict[str, ClusteredValues] = field(default_factory=dict)
    distribution: Counter[float] = field(default_factory=Counter)
    num_rollouts: int = 0
    num_errors: int = 0
    num_broken_lines: int = 0

    @property
    def estimate(self) -> Estimate | None:
        """The mean of all scores with its interval."""
        return self.values.estimate()

    @property
    def environment(self) -> str:
        """The name of the environment, without owner and version."""
        text = str(self.metadata.get("env_id", "?"))
        try:
            return parse_environment_id(text).name
        except BadInput:
            return text

    @property
    def split(self) -> str:
        """Which examples of the environment."""
        return str(self.metadata.get("split") or "eval")

    @property
    def label(self) -> str:
        """How it is called where several are told apart."""
        return f"{self.environment}--{self.metadata.get('model', '?')}/{self.directory.path.name}"


def read_scores(directory: EvalDirectory, *, metric: str = REWARD, by: str | None = None) -> Scores:
    """Read the scores of an evaluation, and with `by` the values of that tag.

    Raises:
        BadInput: no rollout has the metric, or the tag; names those there are.
        PrimeError: the folder is no evaluation.
    """
    is_share = metric in (REWARD, PASSED)
    scores = Scores(directory, directory.read_metadata(), metric, values=ClusteredValues(is_share=is_share))
    names: dict[str, None] = {REWARD: None, PASSED: None}
    for rollout in _rollouts(directory, scores):
        figures = figures_of(rollout, () if by is None else (by,))
        example = scores.examples.setdefault(figures.example_id, ExampleScores())
        scores.num_rollouts += 1
        if not example.question:
            example.question, example.answer = _digests(rollout)
        if by is not None and not example.tags:
            example.tags = figures.tags.get(by, ())
        if figures.error is not None:
            scores.num_errors += 1
            example.errors += 1
            continue
        names |= dict.fromkeys(figures.metrics)
        value = _value(metric, figures.reward, figures.metrics)
        if value is not None:
            example.count += 1
            example.total += value
            example.squares += value * value
            scores.values.add(figures.example_id, value)
            scores.distribution[float(f"{value:.3g}")] += 1
            for tag in figures.tags.get(by or "", ()):
                scores.by_tag.setdefault(tag, ClusteredValues(is_share=is_share)).add(figures.example_id, value)
    if metric not in names:
        raise BadInput(f"{directory.path} has no metric {metric!r}", hint=f"it has {', '.join(names)}")
    if by is not None and scores.examples and not any(example.tags for example in scores.examples.values()):
        raise _no_tag(directory, by)
    return scores


def read_summary(directory: EvalDirectory, *, by: str | None = None) -> EvalSummary:
    """Read an evaluation and return its averages; with `by` the rewards are told by that tag only.

    Raises:
        BadInput: no rollout has the tag.
        PrimeError: the folder is no evaluation.
    """
    scores = Scores(directory, directory.read_metadata(), REWARD)
    tags = USUAL_TAGS if by is None else (by,)
    figures = (figures_of(rollout, tags) for rollout in _rollouts(directory, scores))
    seconds = scores.metadata.get("time")
    summary = summarize(directory.path, figures, float(seconds) if isinstance(seconds, int | float) else 0.0)
    if by is not None and summary.reward is not None and by not in summary.by_tag:
        raise _no_tag(directory, by)
    return summary


def _no_tag(directory: EvalDirectory, by: str) -> BadInput:
    return BadInput(
        f"the tag {by!r} does not tell the rollouts of {directory.path} apart",
        hint="a tag is named by where it stands in a line of results.jsonl, such as `task` or `info.difficulty`",
    )


def _value(metric: str, reward: float, metrics: Mapping[str, float]) -> float | None:
    if metric == REWARD:
        return reward
    if metric in metrics:
        return metrics[metric]
    return float(reward >= PASS_THRESHOLD) if metric == PASSED else None


def _rollouts(directory: EvalDirectory, scores: Scores) -> Iterator[dict[str, Any]]:
    """Yield the rollouts one by one; lines that cannot be read, as a crash leaves them, are counted and passed over."""
    try:
        for line in directory.lines():
            rollout = parsed_rollout(line)
            if rollout is not None:
                yield rollout
            else:
                scores.num_broken_lines += 1
    except OSError as error:
        raise PrimeError(f"{directory.results} cannot be read: {error.strerror}") from None


def _digests(rollout: Mapping[str, Any]) -> tuple[str, str]:
    """Return digests of the prompt, and of what the answer is held against."""
    return _digest(rollout.get("prompt")), _digest(rollout.get("answer"))


def _digest(value: Any) -> str:
    text = json.dumps(_without_keys_of_null(value), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_keys_of_null(value: Any) -> Any:
    """Leave out keys without a value, which versions of the library write or do not."""
    if isinstance(value, Mapping):
        return {key: _without_keys_of_null(one) for key, one in value.items() if one is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_keys_of_null(one) for one in value]
    return value
