"""`prime eval plot`: evaluations side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

_WIDEST = 120


def plot(
    evaluations: Annotated[
        list[str], typer.Argument(metavar="EVALUATION...", help="Folders, ids, beginnings of ids, or hub:ID.")
    ],
    picture: Annotated[Path | None, typer.Option("--save", help="Write a picture here (.png or .svg).")] = None,
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="reward, pass, or a metric of the environment.")
    ] = "reward",
    by: Annotated[str | None, typer.Option("--by", metavar="TAG", help="Apart by a tag, such as task.")] = None,
) -> None:
    """Draw the scores of evaluations with their intervals, and how the scores are spread.

    JSON output (--output json): {metric, evaluations: [{path, model, estimate, by_tag, histogram: {values, shares}}],
    picture}
    """
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.core.plotting import checked_picture
    from prime_cli.evals.find import find_evaluation
    from prime_cli.evals.plot import as_data, save_plot, terminal_histogram, terminal_scores
    from prime_cli.evals.scores import read_scores

    if picture is not None:
        checked_picture(picture)
    scores = [read_scores(find_evaluation(text), metric=metric, by=by) for text in evaluations]
    if picture is not None:
        save_plot(scores, picture)
    if out.mode().json:
        out.print_json({**as_data(scores), "picture": str(picture) if picture else None})
        return
    colour = out.stdout_console().is_terminal and not out.mode().plain
    width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)
    typer.echo(terminal_scores(scores, width=width, colour=colour))
    typer.echo(terminal_histogram(scores, width=width, colour=colour))
    if picture is not None:
        out.note(f"picture: {escape(str(picture))}")
