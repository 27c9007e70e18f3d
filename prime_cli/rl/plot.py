"""The reward curve of a run: in the terminal, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.rl.run_directory import RunDirectory, read_metrics

_SMOOTHING_STEPS = 5

Evaluations = Mapping[str, Sequence[tuple[int, float]]]
"""By name, the steps of an evaluation and its mean reward then."""


def reward_curve(run: RunDirectory) -> list[float]:
    """Return the mean reward of each step.

    Raises:
        PrimeError: the folder is no run, or the run has no finished step yet.
    """
    if not run.config.is_file():
        raise PrimeError(f"{run.path} is not a run directory", hint="runs lie under outputs/rl/")
    records, _ = read_metrics(run.metrics)
    rewards = {record["step"]: float(record["reward/mean"]) for record in records if record["source"] == "orchestrator"}
    if not rewards:
        raise PrimeError(f"{run.path} has no finished step yet")
    return [rewards[step] for step in sorted(rewards)]


def smoothed(values: list[float], steps: int = _SMOOTHING_STEPS) -> list[float]:
    """Return the running mean over the last `steps` values."""
    return [sum(values[max(0, i - steps + 1) : i + 1]) / (i + 1 - max(0, i - steps + 1)) for i in range(len(values))]


def terminal_curve(
    rewards: list[float],
    *,
    width: int = 80,
    height: int = 18,
    colour: bool = True,
    evaluations: Evaluations | None = None,
) -> str:
    """Return the curve drawn with characters, and those of `evaluations` beside it."""
    import plotext

    plotext.clear_figure()
    steps = list(range(1, len(rewards) + 1))
    plotext.theme("clear")
    plotext.plot_size(width, height)
    plotext.plot(steps, rewards, marker="braille", color="green" if colour else None,
                 label="training" if evaluations else None)  # fmt: skip
    for name, points in (evaluations or {}).items():
        plotext.plot(*zip(*points, strict=True), marker="dot", label=name)
    plotext.ylim(0, max(1.0, *rewards))
    plotext.title("mean reward per step")
    plotext.xlabel("step")
    text = plotext.build()
    return str(text if colour else plotext.uncolorize(text)).rstrip()


def save_curve(rewards: list[float], path: Path, *, title: str, evaluations: Evaluations | None = None) -> None:
    """Write the curve as a picture; the format follows the suffix (.png or .svg).

    Raises:
        PrimeError: matplotlib cannot write that format.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    steps = list(range(1, len(rewards) + 1))
    figure, axes = pyplot.subplots(figsize=(7.2, 4), dpi=120)
    axes.plot(steps, rewards, color="#9ecae1", linewidth=1, label="each step")
    axes.plot(steps, smoothed(rewards), color="#08519c", linewidth=2, label=f"mean of {_SMOOTHING_STEPS}")
    for name, points in (evaluations or {}).items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, linewidth=1.5, label=name)
    axes.set(xlabel="step", ylabel="mean reward of all rollouts", ylim=(0, max(1.0, max(rewards)) * 1.02), title=title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, bbox_inches="tight")
    except ValueError as error:
        raise PrimeError(f"cannot write {path}: {error}", hint="use a name that ends in .png or .svg") from None
    finally:
        pyplot.close(figure)
