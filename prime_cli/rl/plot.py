"""The curves of runs, side by side: in the terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.plotting import TERMINAL_COLOURS, colour_of, drawn_in_characters, picture
from prime_cli.rl.evaluation.output import eval_intervals, eval_rewards
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.runs import metrics_by_step

REWARD = "reward/mean"
THE_TEN = (
    REWARD, "groups/zero_advantage", "off_policy/mean", "mismatch_kl/mean", "entropy/mean", "perf/throughput",
    "time/wait_for_batch", "optim/grad_norm", "completion_tokens/mean", "errors",
)  # fmt: skip
"""The figures to look at, as docs/metrics.md begins with them."""
_SMOOTHING_STEPS = 5

Points = Sequence[tuple[int, float]]
"""Steps and the value of a figure then."""


@dataclass(frozen=True)
class RunCurves:
    """What is drawn of a run: figures by name, and by name the rewards of its evaluations and their intervals."""

    name: str
    path: Path
    figures: dict[str, Points]
    evaluations: dict[str, Points]
    intervals: dict[str, Sequence[tuple[int, float, float]]]


def read_curves(run: RunDirectory, names: Sequence[str] = THE_TEN) -> RunCurves:
    """Return the curves of these figures, of those that the run has.

    Raises:
        PrimeError: the folder is no run, or the run has no finished step yet.
        BadInput: it has none of the figures.
    """
    if not run.config.is_file():
        raise PrimeError(f"{run.path} is not a run directory", hint="runs lie under outputs/rl/")
    records = metrics_by_step(run)
    figures = {name: _points(records, name) for name in names}
    figures = {name: points for name, points in figures.items() if points}
    if not figures:
        known = sorted({key for record in records for key in record if key != "step"})
        raise BadInput(f"{run.path} has no figure {' or '.join(names)}", hint=f"it has {', '.join(known)}")
    return RunCurves(run.path.resolve().name, run.path, figures, dict(eval_rewards(run)), dict(eval_intervals(run)))


def smoothed(values: Sequence[float], steps: int = _SMOOTHING_STEPS) -> list[float]:
    """Return the running mean over the last `steps` values."""
    return [sum(values[max(0, i - steps + 1) : i + 1]) / (i + 1 - max(0, i - steps + 1)) for i in range(len(values))]


def terminal_curves(
    runs: Sequence[RunCurves], name: str = REWARD, *, width: int = 80, height: int = 18, colour: bool = True
) -> str:
    """Return one figure of all runs drawn with characters; with the reward come the evaluations."""

    def draw(plot: Any) -> None:
        several = len(runs) > 1
        low, high = [], []
        for number, run in enumerate(runs):
            tint = TERMINAL_COLOURS[number % len(TERMINAL_COLOURS)] if colour else None
            evaluations = run.evaluations if name == REWARD else {}
            label = run.name if several else "training" if evaluations else None
            lines = [(label, "braille", run.figures.get(name, ()))]
            lines += [(f"{run.name} {key}" if several else key, "dot", points) for key, points in evaluations.items()]
            for text, marker, points in lines:
                if points:
                    plot.plot(*zip(*points, strict=True), marker=marker, color=tint, label=text)
                    low.append(min(value for _, value in points))
                    high.append(max(value for _, value in points))
        if name == REWARD and low:
            plot.ylim(min(0.0, *low), max(1.0, *high))
        plot.title("mean reward per step" if name == REWARD else name)
        plot.xlabel("step")

    return drawn_in_characters(draw, width=width, height=height, colour=colour)


def save_curves(runs: Sequence[RunCurves], path: Path, names: Sequence[str] = THE_TEN, *, title: str = "") -> None:
    """Write the figures as a picture with one panel each, all runs in it; the format follows the suffix (.png or .svg).

    Raises:
        PrimeError: the picture cannot be written.
    """
    drawn = [name for name in names if any(name in run.figures for run in runs)]
    columns = 1 if len(drawn) == 1 else 2
    rows = -(-len(drawn) // columns)
    size = (7.2, 4.0) if len(drawn) == 1 else (10.0, 2.3 * rows + 0.4)
    with picture(path, rows=rows, columns=columns, size=size) as grid:
        panels = [grid] if rows * columns == 1 else grid
        for axes, name in zip(panels, drawn, strict=False):
            _panel(axes, runs, name)
        for axes in panels[len(drawn) :]:
            axes.set_axis_off()
        if title:
            panels[0].get_figure().suptitle(title)


def _panel(axes: Any, runs: Sequence[RunCurves], name: str) -> None:
    several = len(runs) > 1
    for number, run in enumerate(runs):
        points = run.figures.get(name, ())
        tint = colour_of(number)
        if points:
            steps, values = zip(*points, strict=True)
            label = run.name if several else f"mean of {_SMOOTHING_STEPS} steps"
            axes.plot(steps, values, color=tint, linewidth=1, alpha=0.35, label=None if several else "each step")
            axes.plot(steps, smoothed(values), color=tint, linewidth=2, label=label)
        if name == REWARD:
            for shift, (key, rewards) in enumerate(run.evaluations.items(), 1):
                # A second colour where there is one run; with several, each keeps its own and the marker tells.
                style = {"color": tint, "linestyle": "--"} if several else {"color": colour_of(shift)}
                label = f"{run.name} {key}" if several else key
                axes.plot(*zip(*rewards, strict=True), marker="o", markersize=4, linewidth=1.5, label=label, **style)
                for step, low, high in run.intervals.get(key, ()):
                    axes.plot([step, step], [low, high], color=style["color"], linewidth=1)
    axes.set_title(name, loc="left")
    axes.set_xlabel("step")
    if name == REWARD:
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.0, low), max(1.02, high))
        axes.legend(frameon=False, fontsize="small")


def _points(records: Sequence[dict[str, Any]], name: str) -> Points:
    return [(int(record["step"]), float(record[name])) for record in records if _is_number(record.get(name))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
