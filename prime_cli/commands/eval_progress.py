"""How far evaluations are: a live line for each on a terminal, printed lines elsewhere; always on stderr."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prime_cli.core import output as out
from prime_cli.core.errors import PrimeError
from prime_cli.evals.launch import Outcome, Watcher
from prime_cli.evals.record import EvalProgress

_PLAIN_EVERY_S = 5.0
_BAR_COLUMNS = 16
_ORDER = ("running", "could not be run", "finished", "waiting")


@contextmanager
def watched(labels: Sequence[str], *, is_file: bool) -> Iterator[Watcher]:
    """Yield who watches evaluations: a live display on a terminal, printed lines elsewhere.

    Args:
        is_file: they are those of a file: each is called by its label, and what fails is said when it fails.
    """
    board = Board(labels, clock=time.monotonic)
    console = out.stderr_console()
    if not out.is_interactive():
        yield Lines(board, console, named=is_file)
        return
    console.soft_wrap = False
    with Live(_Screen(board), console=console, refresh_per_second=4):
        yield LiveWatcher(board, console, named=is_file)


@dataclass
class Standing:
    """How one evaluation stands."""

    label: str
    state: str = "waiting"
    doing: str = ""
    progress: EvalProgress | None = None
    result: str = ""
    began: tuple[float, int] | None = None

    def rate(self, now: float) -> float | None:
        """Return rollouts per second since the first look; None while there is nothing to tell it by."""
        if self.began is None or self.progress is None:
            return None
        seconds, done = now - self.began[0], self.progress.num_done - self.began[1]
        return done / seconds if done and seconds > 0 else None


@dataclass
class Board:
    """How all evaluations stand; knows nothing of where it is shown.

    Args:
        clock: the time in seconds.
    """

    labels: Sequence[str]
    clock: Callable[[], float]
    standings: list[Standing] = field(init=False)

    def __post_init__(self) -> None:
        self.standings = [Standing(label) for label in self.labels]

    def progress(self, place: int, progress: EvalProgress) -> Standing:
        """Take in how far one is."""
        standing = self.standings[place]
        standing.state, standing.progress = "running", progress
        standing.began = standing.began or (self.clock(), progress.num_done)
        return standing

    def line(self, standing: Standing) -> str:
        """Return in words how far one is and how it goes."""
        progress = standing.progress
        if progress is None:
            return standing.doing or standing.state
        parts = [standing.result or mean_of(progress) or "no reward yet"]
        if progress.num_errors:
            parts.append(f"{progress.num_errors} errors")
        rate = standing.rate(self.clock())
        if rate is not None and standing.state == "running":
            parts.append(f"{rate:.1f} rollouts/s")
        return ", ".join([*parts, *troubles_of(progress), *cost_of(progress)])

    def total(self) -> tuple[int, int, int, float]:
        """Return over all: rollouts done, rollouts known of, errors, rollouts per second of what runs."""
        known = [standing.progress for standing in self.standings if standing.progress is not None]
        running = [standing for standing in self.standings if standing.state == "running"]
        rate = sum(standing.rate(self.clock()) or 0.0 for standing in running)
        return (
            sum(one.num_done for one in known),
            sum(one.total for one in known),
            sum(one.num_errors for one in known),
            rate,
        )


def mean_of(progress: EvalProgress) -> str:
    """Return the mean reward with its error; empty while there is none."""
    if progress.mean is None:
        return ""
    error = "" if progress.standard_error is None else f" ± {progress.standard_error:.3f}"
    return f"reward {progress.mean:.3f}{error}"


def troubles_of(progress: EvalProgress) -> list[str]:
    """Return in words what keeps it from going faster."""
    words = []
    if progress.num_retries:
        words.append(f"{progress.num_retries} retries")
    if progress.num_refusals:
        waiting = f", waiting {math.ceil(progress.pause_s)} s" if progress.pause_s > 0 else ""
        words.append(f"rate limited {progress.num_refusals} times{waiting}")
    return words


def cost_of(progress: EvalProgress) -> list[str]:
    """Return in words what it costs; nothing where no price is known."""
    if progress.cost is None:
        return []
    if progress.projected_cost is None or progress.num_done == progress.total:
        return [f"cost {progress.cost:.4g}"]
    return [f"cost {progress.cost:.4g} of about {progress.projected_cost:.4g}"]


class LiveWatcher:
    """Keeps a board that is shown elsewhere; failures are printed above it."""

    def __init__(self, board: Board, console: Console, *, named: bool) -> None:
        self._board = board
        self._console = console
        self._named = named

    def note(self, place: int, text: str) -> None:
        """Show what is being done."""
        standing = self._board.standings[place]
        standing.doing, standing.state = text, "running"

    def progress(self, place: int, progress: EvalProgress) -> None:
        """Show how far it is."""
        self._board.progress(place, progress)

    def finished(self, place: int, outcome: Outcome) -> None:
        """Show that it ended."""
        standing = self._board.standings[place]
        if not isinstance(outcome, PrimeError):
            standing.state, standing.result = "finished", f"reward {outcome.reward}" if outcome.reward else ""
            return
        standing.state = standing.doing = "could not be run"
        if self._named:
            self._console.print(f"[red]error:[/red] {escape(f'{standing.label}: {outcome.message}')}")
            if outcome.hint:
                self._console.print(f"[cyan]hint:[/cyan] {escape(outcome.hint)}")


class Lines(LiveWatcher):
    """Prints a line every few seconds for each evaluation, and one when it ends."""

    def __init__(self, board: Board, console: Console, *, named: bool) -> None:
        super().__init__(board, console, named=named)
        self._printed = [board.clock()] * len(board.standings)

    def note(self, place: int, text: str) -> None:
        """Print what is being done."""
        super().note(place, text)
        self._print(place, text)

    def progress(self, place: int, progress: EvalProgress) -> None:
        """Print how far it is, if that was not said a moment ago."""
        standing = self._board.progress(place, progress)
        if progress.num_done == progress.total or self._board.clock() - self._printed[place] > _PLAIN_EVERY_S:
            self._printed[place] = self._board.clock()
            self._print(place, f"{progress.num_done}/{progress.total}  {self._board.line(standing)}")

    def _print(self, place: int, text: str) -> None:
        label = f"{self._board.standings[place].label}: " if self._named else ""
        self._console.print(escape(f"{label}{text}"))


class _Screen:
    """Draws the board: what runs first, as many lines as fit, and the total below."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield draw(self._board, max_lines=max(1, options.size.height - 3))


def draw(board: Board, *, max_lines: int) -> RenderableType:
    """Return the lines of the evaluations, those that run first, at most `max_lines`, and the total of several."""
    ordered = sorted(board.standings, key=lambda standing: _ORDER.index(standing.state))
    shown = ordered if len(ordered) <= max_lines else ordered[: max_lines - 1]
    shown = [standing for standing in board.standings if any(standing is one for one in shown)]
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="ellipsis", no_wrap=True, max_width=40)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="ellipsis", no_wrap=True)
    for standing in shown:
        progress = standing.progress
        count = f"{progress.num_done}/{progress.total}" if progress else ""
        table.add_row(Text(standing.label), _bar(progress), count, Text(board.line(standing)))
    if len(board.standings) > 1:
        done, known, errors, rate = board.total()
        words = [f"{errors} errors"] if errors else []
        words += [f"{rate:.1f} rollouts/s"] if rate else []
        ended = sum(standing.state in ("finished", "could not be run") for standing in board.standings)
        label = f"{ended} of {len(board.standings)} evaluations"
        bar = ProgressBar(total=max(known, 1), completed=done, width=_BAR_COLUMNS)
        table.add_row(Text(label, style="bold"), bar, f"{done}/{known}", ", ".join(words))
    hidden = len(ordered) - len(shown)
    return Group(table, Text(f"and {hidden} more", style="dim")) if hidden else table


def _bar(progress: EvalProgress | None) -> RenderableType:
    if progress is None:
        return Text("")
    return ProgressBar(total=max(progress.total, 1), completed=progress.num_done, width=_BAR_COLUMNS)
