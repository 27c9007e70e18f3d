"""`prime eval compare` and `prime eval show`: what evaluations say, and whether one differs from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prime_cli.commands import eval_plot

if TYPE_CHECKING:
    from prime_cli.evals.comparison_report import Report

Evaluation = Annotated[
    str, typer.Argument(metavar="EVALUATION", help="A folder, an id, the beginning of an id, or hub:ID.")
]
By = Annotated[
    str | None, typer.Option("--by", metavar="TAG", help="Also apart by a tag, such as task or info.difficulty.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime eval`."""
    app.command("compare")(compare)
    app.command("show")(show)
    app.command("plot")(eval_plot.plot)


def compare(
    evaluations: Annotated[
        list[str],
        typer.Argument(metavar="A B [C]...", help="Folders, ids, beginnings of ids, or hub:ID; A is the baseline."),
    ],
    metric: Annotated[
        str, typer.Option("--metric", "-m", help="reward, pass, or a metric of the environment.")
    ] = "reward",
    by: By = None,
    unpaired: Annotated[
        bool, typer.Option("--unpaired", help="Compare means of different examples, or of different environments.")
    ] = False,
    examples: Annotated[int, typer.Option("--examples", "-n", min=0, help="Changed examples to show.")] = 10,
    form: Annotated[str, typer.Option("--format", help="text, markdown or csv.")] = "text",
) -> None:
    """Say whether B (and C, ...) differs from A: paired by example, with an interval, and what n could show at all.

    JSON output (--output json): {metric, evaluations: [{letter, path, estimate, ...}], comparisons: [{first, second,
    first_mean, second_mean, difference, interval, p, p_corrected, test, smallest_effect, examples_to_decide, pairing,
    changes, by_tag, ...}]}
    """
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.evals.compare import compare_all
    from prime_cli.evals.comparison_report import as_csv, as_data, as_markdown, report_on
    from prime_cli.evals.find import find_evaluation
    from prime_cli.evals.scores import read_scores

    if form not in ("text", "markdown", "csv"):
        raise BadInput(f"no such format: {form!r}", hint="use text, markdown or csv")
    if unpaired and by:
        raise BadInput("--by needs pairs", hint="leave out --unpaired")
    directories = [find_evaluation(text) for text in evaluations]
    scores = [read_scores(directory, metric=metric, by=by) for directory in directories]
    for one in scores:
        if one.num_broken_lines:
            out.warn(f"{one.num_broken_lines} lines of {one.directory.results} are no rollouts and were passed over")
    comparisons = compare_all(scores, unpaired=unpaired, by_tag=by is not None)
    if out.mode().json:
        out.print_json(as_data(scores, comparisons))
    elif form == "csv":
        typer.echo(as_csv(comparisons), nl=False)
    elif form == "markdown":
        typer.echo(as_markdown(report_on(scores, comparisons, examples=examples)))
    else:
        _print(report_on(scores, comparisons, examples=examples))


def show(evaluation: Evaluation, by: By = None) -> None:
    """Show every score of an evaluation with its 95 % interval, also apart by a tag.

    JSON output (--output json): {reward_mean, num_rollouts, num_errors, errors, estimates: {reward, metrics, pass_at_k,
    pass_all_k, by_tag}, path, ...}
    """
    from rich.markup import escape

    from prime_cli.commands.eval_display import print_estimates
    from prime_cli.core import output as out
    from prime_cli.evals.find import find_evaluation
    from prime_cli.evals.scores import read_summary

    summary = read_summary(find_evaluation(evaluation), by=by)
    if out.mode().json:
        out.print_json(summary.as_data())
        return
    print_estimates(summary, title=escape(str(summary.path)))
    for text, count in summary.errors.items():
        out.warn(f"{count} of {summary.num_rollouts} rollouts failed and are in no mean: {escape(text)}")


def _print(report: Report) -> None:
    from rich.markup import escape

    from prime_cli.core import output as out

    for table in (report.runs, report.differences):
        out.print_table(table.columns, table.rows)
    for first, *others in report.verdicts:
        out.stdout_console().print(f"[bold]{escape(first)}[/bold]")
        for sentence in others:
            out.stdout_console().print(f"  {escape(sentence)}")
    for table in report.changes:
        out.stdout_console().print(escape(table.title))
        out.print_table(table.columns, table.rows)
