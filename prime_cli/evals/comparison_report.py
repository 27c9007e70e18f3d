"""A comparison in words, tables and data: the same facts for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any

from prime_cli.core.differences import Difference
from prime_cli.evals.compare import Comparison, ExampleChange, left_out
from prime_cli.evals.scores import Scores

_LITTLE = 0.2
_CSV_COLUMNS = (
    "comparison", "tag", "metric", "first_mean", "second_mean", "difference", "low", "high", "examples", "p",
    "p_corrected", "test", "smallest_effect", "examples_to_decide",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table with a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Report:
    """What is shown, in this order; `verdicts` are the sentences of each comparison, its answer first."""

    runs: Table
    differences: Table
    verdicts: list[list[str]]
    changes: list[Table]


def report_on(evaluations: Sequence[Scores], comparisons: Sequence[Comparison], *, examples: int = 10) -> Report:
    """Return the report, with at most so many examples per comparison."""
    rows = [row for letter, one in _lettered(comparisons) for row in _difference_rows(letter, one)]
    corrected = len(comparisons) > 1 or any(one.by_tag for one in comparisons)
    columns = ("", "A", "other", "difference", "95 % interval", "p (Holm)" if corrected else "p", "examples")
    metric = evaluations[0].metric
    return Report(
        runs=Table("", ("", "evaluation", metric, "95 % interval", "rollouts", "examples", "failed"),
                   [_run_row(letter, scores) for letter, scores in zip(_letters(len(evaluations)), evaluations,
                                                                       strict=True)]),
        differences=Table("", columns, rows),
        verdicts=[list(sentences(letter, one)) for letter, one in _lettered(comparisons)],
        changes=[
            _changes_table(letter, one, examples) for letter, one in _lettered(comparisons) if one.changes and examples
        ],
    )  # fmt: skip


def sentences(letter: str, comparison: Comparison) -> Iterator[str]:
    """Yield what a comparison says, the answer first, then how far it can be trusted."""
    difference, pairing = comparison.difference, comparison.pairing
    yield f"{letter} - A: {_verdict(letter, comparison)}"
    if difference.examples_to_decide is not None and not comparison.is_shown:
        more = difference.examples_to_decide - difference.n
        yield (
            f"If the true difference is the one seen, {more:,} more examples would show it four times in five."
            if more > 0
            else "As many examples would show such a difference four times in five; this was the fifth time."
        )
    if comparison.limit_of_rollouts is not None and not comparison.is_shown:
        yield _what_more_rollouts_show(difference.smallest_effect or 0.0, comparison.limit_of_rollouts)
    if pairing is None:
        yield "Not paired: the examples on both sides are taken for different ones, and only large differences show."
    else:
        rest = left_out(pairing)
        yield f"Paired by {pairing.pairs} examples" + (f"; left out: {rest}." if rest else ", all that there are.")
        if pairing.other_prompts:
            yield f"In {pairing.other_prompts} of them the prompt is not the same on both sides."
    if comparison.with_errors_as_zero is not None:
        other = comparison.with_errors_as_zero
        yield (
            f"With failed rollouts counted as 0 the difference would be {_signed(other.mean)} {_interval(other)} "
            f"over {other.n} examples."
        )
    if comparison.p is not None and comparison.difference.p is not None and comparison.p > comparison.difference.p:
        yield f"p is corrected for the number of comparisons; by itself it is {_p(comparison.difference.p)}."
    if differing := comparison.settings_that_differ():
        yield "Not the same in both: " + "; ".join(
            f"{name} ({_short(one)}, {_short(other)})" for name, (one, other) in differing.items()
        )


def as_data(evaluations: Sequence[Scores], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return everything as JSON output has it."""
    return {
        "metric": evaluations[0].metric,
        "evaluations": [_run_data(letter, scores) for letter, scores in
                        zip(_letters(len(evaluations)), evaluations, strict=True)],
        "comparisons": [_comparison_data(letter, one) for letter, one in _lettered(comparisons)],
    }  # fmt: skip


def as_csv(comparisons: Sequence[Comparison]) -> str:
    """Return the differences, one a line, those of tags after their comparison."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for letter, one in _lettered(comparisons):
        parts = [("", one.first_mean, one.second_mean, one.difference, one.p)]
        parts += [(tag.value, tag.first, tag.second, tag.difference, tag.p) for tag in one.by_tag]
        for tag, first, second, d, p in parts:
            row = (f"{letter} - A", tag, one.first.metric, first, second, d.mean, d.low, d.high, d.n, d.p, p, d.test,
                   d.smallest_effect, d.examples_to_decide)  # fmt: skip
            writer.writerow(["" if cell is None else cell for cell in row])
    return text.getvalue()


def as_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = [_markdown_table(report.runs), _markdown_table(report.differences)]
    for first, *others in report.verdicts:
        parts.append("\n".join([f"**{_cell(first)}**", *(f"- {_cell(sentence)}" for sentence in others)]))
    parts += [_markdown_table(table) for table in report.changes]
    return "\n\n".join(parts)


def _verdict(letter: str, comparison: Comparison) -> str:
    difference, metric = comparison.difference, comparison.first.metric
    if difference.p is None or difference.is_too_small:
        return f"too few examples to tell anything ({_signed(difference.mean)}); it takes six at the least."
    if not comparison.changes and comparison.pairing is not None:
        return f"no example has another {metric}."
    limit = difference.smallest_effect
    could = "" if limit is None else f" It would have shown one of {limit:.3f} four times in five."
    if not comparison.is_shown:
        seen = f"{_signed(difference.mean)} {_interval(difference)}".rstrip()
        return f"no difference in {metric} is shown ({seen}, p = {_p(comparison.p)}).{could}"
    better = "higher" if difference.mean > 0 else "lower"
    return (
        f"{metric} of {letter} is {better} by {abs(difference.mean):.3f} {_interval(difference)}".rstrip()
        + f" (p = {_p(comparison.p)}, {difference.test}).{could}"
    )


def _what_more_rollouts_show(effect: float, limit: float) -> str:
    if limit < _LITTLE * effect:
        return (
            "More rollouts of these same examples would do as well: what varies is nearly all between rollouts of one."
        )
    return (
        f"More rollouts of these same examples would bring what it can show from {effect:.3f} down to {limit:.3f} at "
        "the best."
    )


def _run_row(letter: str, scores: Scores) -> tuple[object, ...]:
    estimate = scores.estimate
    shown = ("-", "-") if estimate is None else (f"{estimate.mean:.3f}", estimate.interval or "-")
    failed = scores.num_errors or ""
    return letter, scores.label, *shown, scores.num_rollouts, len(scores.examples), failed


def _difference_rows(letter: str, one: Comparison) -> Iterator[tuple[object, ...]]:
    yield _difference_row(f"{letter} - A", one.first_mean, one.second_mean, one.difference, one.p)
    for tag in one.by_tag:
        yield _difference_row(f"  {tag.value}", tag.first, tag.second, tag.difference, tag.p)


def _difference_row(name: str, first: float, second: float, d: Difference, p: float | None) -> tuple[object, ...]:
    return (name, f"{first:.3f}", f"{second:.3f}", _signed(d.mean), _interval(d) or "-", _p(p), d.n)


def _changes_table(letter: str, one: Comparison, limit: int) -> Table:
    lost = sum(change.difference < 0 for change in one.flipped)
    flipped = (
        f", of which {len(one.flipped) - lost} passed only in {letter} and {lost} only in A" if one.flipped else ""
    )
    title = (
        f"{len(one.changes)} examples changed from A to {letter}{flipped}. "
        f"Look into them in {one.first.directory.path} and {one.second.directory.path}"
    )
    return Table(title, ("example", "A", letter, "difference", ""), [_change_row(c) for c in one.changes[:limit]])


def _change_row(change: ExampleChange) -> tuple[object, ...]:
    flipped = "" if not change.flipped else "now passes" if change.difference > 0 else "no longer passes"
    return (
        str(change.example_id), _with_count(change.first, change.first_rollouts),
        _with_count(change.second, change.second_rollouts), _signed(change.difference), flipped,
    )  # fmt: skip


def _run_data(letter: str, scores: Scores) -> dict[str, Any]:
    estimate = scores.estimate
    return {
        "letter": letter,
        "path": str(scores.directory.path),
        "environment": scores.environment,
        "model": scores.metadata.get("model"),
        "estimate": estimate.as_data() if estimate else None,
        "num_rollouts": scores.num_rollouts,
        "num_errors": scores.num_errors,
        "num_broken_lines": scores.num_broken_lines,
    }


def _comparison_data(letter: str, one: Comparison) -> dict[str, Any]:
    other = one.with_errors_as_zero
    return {
        "first": "A",
        "second": letter,
        "first_mean": one.first_mean,
        "second_mean": one.second_mean,
        **one.difference.as_data(),
        "p_corrected": one.p,
        "is_shown": one.is_shown,
        "pairing": asdict(one.pairing) if one.pairing else None,
        "with_errors_as_zero": other.as_data() if other else None,
        "smallest_effect_with_many_rollouts": one.limit_of_rollouts,
        "settings_that_differ": {name: list(pair) for name, pair in one.settings_that_differ().items()},
        "by_tag": {
            tag.value: {"first_mean": tag.first, "second_mean": tag.second, **tag.difference.as_data(),
                        "p_corrected": tag.p}
            for tag in one.by_tag
        },
        "changes": [{**asdict(change), "difference": change.difference} for change in one.changes],
    }  # fmt: skip


def _lettered(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Comparison]]:
    return zip(_letters(len(comparisons) + 1)[1:], comparisons, strict=True)


def _letters(count: int) -> list[str]:
    return [ascii_uppercase[i] if i < len(ascii_uppercase) else f"#{i + 1}" for i in range(count)]


def _markdown_table(table: Table) -> str:
    lines = [f"{_cell(table.title)}\n"] if table.title else []
    lines.append(f"| {' | '.join(table.columns)} |")
    lines.append(f"|{'---|' * len(table.columns)}")
    lines += [f"| {' | '.join(_cell(str(cell)) for cell in row)} |" for row in table.rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _interval(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f"[{_signed(difference.low)}, {_signed(difference.high)}]"


def _signed(value: float) -> str:
    return f"{value:+.3f}"


def _with_count(mean: float, rollouts: int) -> str:
    return f"{mean:.3f}" if rollouts == 1 else f"{mean:.3f} (n={rollouts})"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
