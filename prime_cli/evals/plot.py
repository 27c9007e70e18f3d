"""Evaluations side by side: each score with its interval, and how the scores are spread; in characters or a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.plotting import TERMINAL_COLOURS, colour_of, drawn_in_characters, picture
from prime_cli.core.statistics import Estimate
from prime_cli.evals.scores import Scores

_FEW_VALUES = 12
_BINS = 20


@dataclass(frozen=True)
class Line:
    """A line of the plot of scores: an evaluation, or the examples of one with some value of a tag."""

    label: str
    estimate: Estimate
    run: int


def lines_of(evaluations: Sequence[Scores]) -> list[Line]:
    """Return the lines from the top: every evaluation, or where they were read by a tag, each value of it in each.

    Raises:
        PrimeError: there is no score at all.
    """
    lines = []
    tags = sorted({value for scores in evaluations for value in scores.by_tag})
    for value in tags or [""]:
        for run, scores in enumerate(evaluations):
            values = scores.by_tag.get(value) if tags else scores.values
            estimate = values.estimate() if values is not None else None
            if estimate is not None:
                name = names_of(evaluations)[run]
                lines.append(Line(f"{value}  {name}" if tags else name, estimate, run))
    if not lines:
        raise PrimeError("there is no score to draw", hint="every rollout failed: `prime eval show RUN` says how")
    return lines


def names_of(evaluations: Sequence[Scores]) -> list[str]:
    """Return a name for each evaluation: its model where that tells them apart, else its folder's name too."""
    models = [str(scores.metadata.get("model", "?")) for scores in evaluations]
    if len(set(models)) == len(models):
        return models
    return [f"{model} {scores.directory.path.name}" for model, scores in zip(models, evaluations, strict=True)]


def bins_of(evaluations: Sequence[Scores]) -> tuple[list[float], list[list[float]], bool]:
    """Return a histogram of all scores: positions, for each evaluation the share in each bin, and if bins are values.

    Where there are few values (a reward of 0 or 1) each is a bin of its own, else the bins are equally wide.
    """
    values = sorted({value for scores in evaluations for value in scores.distribution})
    if not values:
        return [], [[] for _ in evaluations], True
    few = len(values) <= _FEW_VALUES
    low, width = values[0], (values[-1] - values[0]) / _BINS
    positions = values if few else [low + (number + 0.5) * width for number in range(_BINS)]
    shares = []
    for scores in evaluations:
        counts = [0] * len(positions)
        for value, count in scores.distribution.items():
            counts[values.index(value) if few else min(_BINS - 1, int((value - low) / width))] += count
        total = sum(counts) or 1
        shares.append([count / total for count in counts])
    return positions, shares, few


def as_data(evaluations: Sequence[Scores]) -> dict[str, Any]:
    """Return what is drawn, as JSON output has it."""
    positions, shares, _ = bins_of(evaluations)
    return {
        "metric": evaluations[0].metric,
        "evaluations": [
            {
                "path": str(scores.directory.path),
                "model": scores.metadata.get("model"),
                "estimate": _data(scores.values.estimate()),
                "by_tag": {value: _data(values.estimate()) for value, values in sorted(scores.by_tag.items())},
                "histogram": {"values": positions, "shares": share},
            }
            for scores, share in zip(evaluations, shares, strict=True)
        ],
    }


def terminal_scores(evaluations: Sequence[Scores], *, width: int = 80, colour: bool = True) -> str:
    """Return the scores with their intervals, drawn with characters."""
    lines = lines_of(evaluations)

    def draw(plot: Any) -> None:
        rows = list(range(len(lines), 0, -1))
        for row, line in zip(rows, lines, strict=True):
            tint = TERMINAL_COLOURS[line.run % len(TERMINAL_COLOURS)] if colour else None
            low, high = _ends(line.estimate)
            plot.plot([low, high], [row, row], marker="-", color=tint)
            plot.scatter([line.estimate.mean], [row], marker="●", color=tint)
        plot.yticks(rows, [f"{line.label}  {line.estimate.mean:.3f} {line.estimate.interval}" for line in lines])
        plot.ylim(0.5, len(lines) + 0.5)
        plot.title(f"mean {evaluations[0].metric}, 95 % interval")

    return drawn_in_characters(draw, width=width, height=2 * len(lines) + 4, colour=colour)


def terminal_histogram(evaluations: Sequence[Scores], *, width: int = 80, height: int = 14, colour: bool = True) -> str:
    """Return how the scores are spread, drawn with characters; without colour, several are drawn one below another."""
    if len(evaluations) > 1 and not colour:
        return "\n".join(
            terminal_histogram([one], width=width, height=height, colour=False).replace(
                "rollouts", f"rollouts of {name}"
            )
            for one, name in zip(evaluations, names_of(evaluations), strict=True)
        )
    positions, shares, _ = bins_of(evaluations)

    def draw(plot: Any) -> None:
        tints = [TERMINAL_COLOURS[run % len(TERMINAL_COLOURS)] for run in range(len(shares))]
        # Colours are those of the scores above; a legend would lie on the bars.
        plot.multiple_bar([f"{position:.3g}" for position in positions], shares, color=tints if colour else None)
        plot.title(f"share of rollouts by {evaluations[0].metric}")

    return drawn_in_characters(draw, width=width, height=height, colour=colour) if positions else ""


def save_plot(evaluations: Sequence[Scores], path: Path) -> None:
    """Write both as a picture; the format follows the suffix (.png or .svg).

    Raises:
        PrimeError: the picture cannot be written.
    """
    lines = lines_of(evaluations)
    height = max(3.0, 0.35 * len(lines) + 1.2)
    with picture(path, columns=2, size=(10.0, height)) as (left, right):
        for row, line in enumerate(lines):
            low, high = _ends(line.estimate)
            tint = colour_of(line.run)
            left.plot([low, high], [row, row], color=tint, linewidth=2, solid_capstyle="butt")
            left.plot([line.estimate.mean], [row], "o", color=tint)
        left.set_yticks(range(len(lines)), [f"{line.label} (n={line.estimate.groups})" for line in lines])
        left.set_ylim(len(lines) - 0.5, -0.5)
        left.set_title(f"mean {evaluations[0].metric}, 95 % interval; n: examples", loc="left")
        _histogram(right, evaluations)


def _histogram(axes: Any, evaluations: Sequence[Scores]) -> None:
    positions, shares, few = bins_of(evaluations)
    if not positions:
        return
    step = min((b - a for a, b in pairwise(positions)), default=1.0)
    width = 0.8 * step / len(shares)
    for run, share in enumerate(shares):
        shift = (run - (len(shares) - 1) / 2) * width
        axes.bar([p + shift for p in positions], share, width=width, color=colour_of(run))
    if few:
        axes.set_xticks(positions, [f"{position:.3g}" for position in positions])
    axes.set_title(f"share of rollouts by {evaluations[0].metric}", loc="left")


def _data(estimate: Estimate | None) -> dict[str, Any] | None:
    return estimate.as_data() if estimate else None


def _ends(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        return estimate.mean, estimate.mean
    return estimate.low, estimate.high
