"""What `prime gepa` shows: the plan and the progress on stderr, what was found on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape

from prime_cli.core import output as out
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Observer, Progress
from prime_cli.gepa.prompts import diff
from prime_cli.gepa.summary import GepaSummary

_PLAIN_EVERY_S = 5.0


@contextmanager
def progress_display() -> Iterator[Observer]:
    """Yield an observer that shows a bar on a terminal, and elsewhere a line every few seconds and for each find."""
    if not out.is_interactive():
        yield _Lines().observe
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=out.stderr_console(), transient=True) as display:
        task = display.add_task("loading the environment", total=None)
        pace = _Pace()

        def observe(progress: Progress) -> None:
            text = escape(
                f"{progress.phase}\n{', '.join(filter(None, (progress_line(progress), pace.left(progress))))}"
            )
            done, total = progress.done
            display.update(task, completed=done, total=total, description=text)

        yield observe


def progress_line(progress: Progress, left: str = "") -> str:
    """Return scores, candidates, errors, cost and the time left in words."""
    parts = []
    if progress.baseline is not None and progress.best is not None:
        parts.append(f"initial {progress.baseline:.3f}, best {progress.best:.3f} (candidate {progress.best_candidate})")
        parts.append(f"{progress.proposals} proposed, {progress.candidates - 1} accepted")
    if progress.errors:
        parts.append(f"{progress.errors} rollouts failed")
    if progress.cost is not None:
        parts.append(f"${progress.cost:.4f}")
    return ", ".join(filter(None, [*parts, left])) or "no score yet"


def show_plan(plan: Plan) -> None:
    """Say on stderr what the budget buys."""
    for line in plan.lines():
        out.note(escape(line))


def print_plan(plan: Plan) -> None:
    """Print what the budget buys."""
    out.print_result(plan.as_data(), "\n".join([*plan.lines(), f"floor      {plan.floor} calls"]))


def print_summary(summary: GepaSummary) -> None:
    """Print the candidates, how the best prompt differs, and whether it is better."""
    if out.mode().json:
        out.print_json(summary.as_data())
        return
    found = summary.found
    out.print_table(["candidate", "validation", "found after", ""], _lineage(summary))
    text = diff(found.prompts[0], summary.prompt, name=f"candidate_{found.best}")
    console = out.stdout_console()
    if text:
        console.print(text, markup=False, end="")
    console.print(f"\n{summary.verdict}", markup=False)
    progress = summary.progress
    if progress.errors:
        out.warn(f"{progress.errors} rollouts failed and counted as 0 in the search; the comparison leaves them out")
    models = (("model", progress.rollouts), ("reflection", progress.reflections))
    used = "; ".join(
        f"{name}: {usage.calls} calls, {usage.input_tokens} + {usage.output_tokens} tokens"
        + ("" if usage.cost is None else f", ${usage.cost:.4f}")
        for name, usage in models
    )
    out.note(f"{found.calls} of {summary.plan.max_calls} calls in {summary.seconds:.0f} s; {used}")
    if summary.path is not None:
        console.print(f"prompt: {summary.path / 'system_prompt.txt'}", markup=False)
    else:
        console.print(f"\n{summary.prompt}", markup=False)


def _lineage(summary: GepaSummary) -> list[tuple[object, ...]]:
    """Return a row for each candidate, children below their parents."""
    found, rows = summary.found, list[tuple[object, ...]]()

    def add(index: int, depth: int) -> None:
        mark = "best" if index == found.best else ""
        name = "  " * depth + ("initial" if index == 0 else str(index))
        rows.append((name, f"{found.scores[index]:.3f}", f"{found.discovered_after[index]} calls", mark))
        for child, parents in enumerate(found.parents):
            if parents and parents[0] == index:
                add(child, depth + 1)

    add(0, 0)
    return rows


class _Pace:
    """Says how long it will take, from how long the calls took that were really made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None

    def left(self, progress: Progress) -> str:
        """Return the time left in words, empty before there is a pace."""
        now = self._clock()
        made = progress.calls + progress.comparison_calls - progress.replayed
        if self._began is None or not made:
            self._began = now
            return ""
        done, total = progress.done
        seconds = (now - self._began) / made * (total - done)
        return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"


class _Lines:
    def __init__(self) -> None:
        self._pace = _Pace()
        self._printed = time.monotonic()
        self._candidates = 0

    def observe(self, progress: Progress) -> None:
        left = self._pace.left(progress)
        found = progress.candidates != self._candidates
        if found or time.monotonic() - self._printed > _PLAIN_EVERY_S:
            self._printed, self._candidates = time.monotonic(), progress.candidates
            done, total = progress.done
            out.note(escape(f"{done}/{total}  {progress_line(progress, left)}  ({progress.phase})"))
