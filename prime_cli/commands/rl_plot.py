"""`prime rl plot`: the curves of runs, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prime_cli.rl.plot import Points, RunCurves

_WIDEST = 120


def plot(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or their names.")],
    picture: Annotated[Path | None, typer.Option("--save", help="Write the curves here (.png or .svg).")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="This figure; repeat it. Default: the ten to look at.")
    ] = None,
    folder: Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where the runs lie.")] = Path(
        "outputs/rl"
    ),
) -> None:
    """Draw the curves of runs in the terminal, and save them as a picture. docs/metrics.md says what the figures mean.

    JSON output (--output json): {runs: [{name, path, metrics: {name: [[step, value]]}, evaluations: {name: [[step,
    reward]]}}], picture}
    """
    from dataclasses import asdict

    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.core.plotting import checked_picture
    from prime_cli.rl.plot import REWARD, THE_TEN, read_curves, save_curves, terminal_curves
    from prime_cli.rl.run_directory import RunDirectory
    from prime_cli.rl.runs import open_run

    if picture is not None:
        checked_picture(picture)
    names = only or THE_TEN
    found = [
        read_curves(RunDirectory(Path(run)) if Path(run).is_dir() else open_run(run, folder), names) for run in runs
    ]
    if picture is not None:
        save_curves(found, picture, names)
    if out.mode().json:
        data = [{**asdict(run), "metrics": run.figures} for run in found]
        out.print_json(
            {"runs": [{key: value for key, value in one.items() if key != "figures"} for one in data],
             "picture": str(picture) if picture else None}
        )  # fmt: skip
        return
    colour = out.stdout_console().is_terminal and not out.mode().plain
    width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)
    for name in only or [REWARD]:
        typer.echo(terminal_curves(found, name, width=width, colour=colour))
    if not only:
        out.print_table(("", "run", "curve", "first", "last"), _rows(found, names[1:]))
    if picture is not None:
        out.note(f"picture: {escape(str(picture))}")


def _rows(runs: Sequence[RunCurves], names: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the other figures as lines of blocks."""
    return [_row(name, run.name, run.figures[name]) for name in names for run in runs if name in run.figures]


def _row(name: str, run: str, points: Points) -> tuple[object, ...]:
    from prime_cli.rl.display import sparkline

    values = [value for _, value in points]
    return name, run, sparkline(values, width=24), f"{values[0]:.3g}", f"{values[-1]:.3g}"
