"""Where marks lie in the plots of pages, in per cent of their width. Pure; the templates draw them as SVG.

Plots have no fixed width: labels keep their size on narrow screens while marks move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hub_server.evaluations.tables import Evaluation

_MAX_ROWS = 12
ROW_HEIGHT = 46


@dataclass(frozen=True)
class Mark:
    """One evaluation in a plot."""

    x: float
    label: str
    is_newest: bool


@dataclass(frozen=True)
class Row:
    """All evaluations of one model; `newest` is the mean reward that is written beside its name."""

    name: str
    newest: float
    marks: list[Mark]
    y: int


@dataclass(frozen=True)
class Tick:
    """A labelled line across the plot."""

    x: float
    label: str
    anchor: str


@dataclass(frozen=True)
class RewardPlot:
    """Mean rewards by model, best newest one first. `left_out` counts the models that did not fit."""

    rows: list[Row]
    ticks: list[Tick]
    height: int
    left_out: int

    @property
    def in_words(self) -> str:
        """The plot for those who do not see it."""
        return "; ".join(f"{row.name}: {row.newest:.3f}" for row in self.rows)


def reward_plot(evaluations: Sequence[Evaluation]) -> RewardPlot | None:
    """Return the plot of evaluations that have a mean reward; None when there is none."""
    scored = [(found, found.avg_score) for found in evaluations if found.avg_score is not None]
    if not scored:
        return None
    ticks, low, high = _scale([score for _, score in scored])
    models: dict[str, list[tuple[datetime, float, str]]] = {}
    for evaluation, score in scored:
        by_time = models.setdefault(evaluation.model_name or "(no model named)", [])
        by_time.append((evaluation.created_at, score, evaluation.name))
    newest = {name: max(points)[1] for name, points in models.items()}
    best_first = sorted(models, key=lambda name: (-newest[name], name))
    rows = []
    for number, name in enumerate(best_first[:_MAX_ROWS]):
        points = sorted(models[name])
        marks = [
            Mark(_per_cent(score, low, high), f"{said}, {moment:%Y-%m-%d}: {score:.3f}", position == len(points) - 1)
            for position, (moment, score, said) in enumerate(points)
        ]
        rows.append(Row(name, newest[name], marks, number * ROW_HEIGHT))
    return RewardPlot(rows, ticks, len(rows) * ROW_HEIGHT + 26, max(len(models) - _MAX_ROWS, 0))


@dataclass(frozen=True)
class Bar:
    """One bin of a histogram: where it begins, how high it is in per cent, and what it says."""

    x: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Histogram:
    """How often each reward was given."""

    bars: list[Bar]
    ticks: list[Tick]
    in_words: str


def histogram(low: float, high: float, counts: Sequence[int]) -> Histogram:
    """Return the plot of `counts`, the number of rollouts in equal bins from `low` to `high`."""
    most = max(counts)
    width = 100 / len(counts)
    step = (high - low) / len(counts)
    bars, words = [], []
    for number, count in enumerate(counts):
        if count:
            label = f"{low + number * step:.3g} to {low + (number + 1) * step:.3g}: {count:,}"
            words.append(label)
            bars.append(Bar(number * width, width, 100 * count / most, label))
    ticks = [_tick(low + part * (high - low), low, high) for part in (0, 0.5, 1)]
    return Histogram(bars, ticks, "; ".join(words))


def _scale(values: Sequence[float]) -> tuple[list[Tick], float, float]:
    """Return round lines and the ends of an axis that shows 0, 1 and all values."""
    lowest, highest = min(0.0, *values), max(1.0, *values)
    step = _round_step((highest - lowest) / 4)
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    low, high = first * step, last * step
    return [_tick(number * step, low, high) for number in range(first, last + 1)], low, high


def _round_step(least: float) -> float:
    size: float = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= least - 1e-12)


def _tick(value: float, low: float, high: float) -> Tick:
    x = _per_cent(value, low, high)
    return Tick(x, f"{value:.3g}", "start" if x < 1 else "end" if x > 99 else "middle")


def _per_cent(value: float, low: float, high: float) -> float:
    return round(100 * (value - low) / (high - low), 3)
