"""The pane that says what an evaluation was, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from textual.content import Content

from prime_cli.viewer.reading.evaluations import Evaluation, histogram, settings_of
from prime_cli.viewer.reading.rollout_index import RolloutIndex
from prime_cli.viewer.widgets.styled import BOLD, DIM, GOOD, WRONG, Line, heading, lines, pairs, reward_style

_BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def evaluation_details(evaluation: Evaluation, index: RolloutIndex | None) -> Content:
    """Return the settings and figures of an evaluation; histogram and metrics as far as its file is indexed."""
    return lines(_all(evaluation, index))


def _all(evaluation: Evaluation, index: RolloutIndex | None) -> Iterator[Line]:
    metadata = evaluation.metadata
    yield ((evaluation.environment, BOLD), ("  ", ""), (evaluation.model, DIM))
    yield ((str(evaluation.path), DIM),)
    yield ()
    if evaluation.problem:
        yield ((evaluation.problem, WRONG),)
        yield ()
    yield (("reward ", DIM), (evaluation.mean_text, f"bold {reward_style(evaluation.mean)}"), *_counts(evaluation))
    chances = _chances(metadata)
    if chances:
        yield ((chances, ""),)
    yield ()
    if index is not None:
        yield from _of_rollouts(index)
    rows = settings_of(metadata)
    if rows:
        yield heading("settings")
        yield from pairs(rows)


def _counts(evaluation: Evaluation) -> list[tuple[str, str]]:
    failed = evaluation.metadata.get("num_errors")
    counts = [(f"   {evaluation.count_text.split(' ')[0]}", "")]
    if evaluation.interval is not None:
        low, high = evaluation.interval
        counts.insert(0, (f"   95 % [{low:.3f}, {high:.3f}]", DIM))
    if failed:
        counts.append((f"   {failed} failed", WRONG))
    return counts


def _chances(metadata: Any) -> str:
    found = []
    for name, key in (("pass@", "pass_at_k"), ("pass^", "pass_all_k")):
        chances = metadata.get(key)
        for k, value in chances.items() if isinstance(chances, dict) else ():
            if isinstance(value, int | float) and not (name == "pass^" and k == "1"):
                found.append(f"{name}{k} {value:.3f}")
    return "  ".join(found)


def _of_rollouts(index: RolloutIndex) -> Iterator[Line]:
    rewards = [reward for _, _, reward in index.scores() if reward is not None]
    part = "" if index.share_done >= 1 else f"  (of {index.share_done:.0%} of the file so far)"
    if rewards:
        yield (*heading("rewards"), (part, DIM))
        yield from _bars(histogram(rewards))
        yield ()
    metrics = index.metrics()
    if metrics:
        width = max(len(metric.name) for metric in metrics)
        yield heading("metrics")
        yield ((f"{'':<{width}}  {'mean':>7}{'least':>7}{'most':>7}{'n':>6}", DIM),)
        for metric in metrics:
            figures = f"{metric.mean:>7.3g}{metric.least:>7.3g}{metric.most:>7.3g}{metric.count:>6}"
            yield (f"{metric.name:<{width}}  {figures}",)
        yield ()
    tags = index.tags()
    if 1 < len(tags) <= 20:
        yield heading("tags")
        width = max(map(len, tags))
        for tag, (count, mean) in tags.items():
            shown = "-" if mean is None else f"{mean:.3f}"
            yield ((f"{tag:<{width}}  ", DIM), (shown, reward_style(mean)), (f"  n={count:,}", DIM))
        yield ()


def _bars(buckets: Sequence[tuple[str, int]]) -> Iterator[Line]:
    most = max(count for _, count in buckets)
    width = max(len(label) for label, _ in buckets)
    for label, count in buckets:
        eighths = round(8 * _BAR * count / most)
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8].strip() if eighths % 8 else "")
        yield ((f"{label:>{width}} ", DIM), (f"{bar or ('▏' if count else ''):<{_BAR}}", GOOD), f" {count:,}")
