"""The rollouts of one results file: the list, the one under the cursor to read, a line to filter by."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from prime_cli.core.errors import BadInput
from prime_cli.viewer.reading.rollout_index import RolloutIndex, index_cache
from prime_cli.viewer.reading.rollout_query import HELP, ORDERS, Order, RolloutQuery, parse_query
from prime_cli.viewer.reading.sections import sections_of
from prime_cli.viewer.screens.copy import CopyScreen
from prime_cli.viewer.screens.logs import LogsScreen
from prime_cli.viewer.widgets.conversation import Conversation
from prime_cli.viewer.widgets.rollout_list import RolloutList
from prime_cli.viewer.widgets.row_list import RowList
from prime_cli.viewer.widgets.styled import BOLD, DIM, WRONG, Line, lines

Logs = tuple[Path, Callable[[], list[Path]]]

_FIRST_LINES = 60
_LINES_AT_ONCE = 400
_TOLD_EVERY_S = 0.25
_LOOK_EVERY_S = 1.0


class RolloutsScreen(Screen[None]):
    """Reads one file.

    Args:
        results: the rollouts, one a line; the file may still grow.
        title: what is above the list: the environment, the model and the run.
        logs: the folder under which the logs lie, and what finds them.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - no class variable in textual
    CSS = """
    RolloutsScreen { layout: vertical; }
    #head { height: 1; padding: 0 1; background: $panel; }
    #filter { height: 3; display: none; dock: bottom; offset-y: -1; }
    #filter.open { display: block; }
    RolloutsScreen.-narrow #panes { layout: vertical; }
    RolloutsScreen.-narrow #rollouts { height: 36%; border-bottom: solid $primary-muted; }
    RolloutsScreen.-narrow #read { height: 1fr; }
    RolloutsScreen.-wide #panes { layout: horizontal; }
    RolloutsScreen.-wide #rollouts { width: 42%; border-right: solid $primary-muted; }
    RolloutsScreen.-wide #read { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "move(1)", "Next", key_display="n/p"),
        Binding("p", "move(-1)", "Previous", show=False),
        Binding("slash,s", "filter", "Filter", key_display="/"),
        Binding("o", "order", "Order"),
        Binding("e", "fold(False)", "Open/fold", key_display="e/x"),
        Binding("x", "fold(True)", "Fold all", show=False),
        Binding("m", "markdown", "Markdown", show=False),
        Binding("l", "logs", "Logs"),
        Binding("c", "copy", "Copy"),
        Binding("r", "list", "Rollouts", show=False),
        Binding("b,backspace", "app.close_screen", "Back"),
        Binding("escape", "escape", "Back", show=False),
    ]

    class Grown(Message):
        """More of the file is indexed."""

    class Found(Message):
        """Some rollouts that were asked for."""

        def __init__(self, asked: int, numbers: Sequence[int], looked: int, complete: bool) -> None:
            super().__init__()
            self.asked = asked
            self.numbers = numbers
            self.looked = looked
            self.complete = complete

    def __init__(self, results: Path, title: Line, *, logs: Logs | None = None) -> None:
        super().__init__()
        self.index = RolloutIndex(results, cache=index_cache())
        self._title = title
        self._logs = logs
        self._query = RolloutQuery()
        self._asked = 0
        self._searching: str | None = None
        self._asked_at = 0.0
        self._seen = 0

    def compose(self) -> ComposeResult:
        """Lay out the list beside or over the rollout."""
        yield Static("", id="head")
        with Container(id="panes"):
            yield RolloutList(self.index.facts, id="rollouts")
            with Vertical(id="read"):
                yield Conversation(id="conversation")
        yield Input(placeholder=HELP, id="filter", select_on_focus=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to index; what was indexed before is there at once."""
        if self.index.count:
            self.on_rollouts_screen_grown()
        self._index_on()
        self.set_interval(_LOOK_EVERY_S, self._index_on)
        self.query_one(RolloutList).focus()
        self._show_head()

    def on_rollouts_screen_grown(self) -> None:
        """List what is there now."""
        anew = self.index.count < self._seen
        self._seen = self.index.count
        if self._query.is_all:
            self.query_one(RolloutList).show(range(self._seen), keep_place=True, renewed=anew)
        elif self._searching is None and time.monotonic() - self._asked_at > _LOOK_EVERY_S:
            self._ask(keep_place=True)
        self._show_head()

    def on_rollouts_screen_found(self, event: Found) -> None:
        """List what was found so far."""
        if event.asked != self._asked:
            return
        self._searching = None if event.complete else f"searching, {event.looked:,} of {self.index.count:,}"
        self.query_one(RolloutList).show(event.numbers, keep_place=True)
        if not event.numbers:
            self.query_one(Conversation).show(())
        self._show_head()

    def on_row_list_highlighted(self, event: RowList.Highlighted) -> None:
        """Show the rollout under the cursor."""
        try:
            sections = sections_of(self.index.read(event.number))
        except (KeyError, OSError):  # the file was replaced or removed since it was indexed
            sections = []
        self.query_one(Conversation).show(sections, words=self._query.words)
        self._show_head()

    def on_row_list_selected(self) -> None:
        """Go on to reading."""
        self.query_one(Conversation).focus()

    def on_rollout_list_order_asked(self, event: RolloutList.OrderAsked) -> None:
        """Order by the column that was clicked; by reward first the worst, then the best."""
        turned = event.order == "reward" and self._query.order == "reward"
        self._set_query(order="-reward" if turned else event.order)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed; what is not whole yet waits."""
        try:
            self._set_query(text=event.value)
            event.input.border_title = None
        except BadInput as error:
            event.input.border_title = error.message

    def on_input_submitted(self) -> None:
        """Leave the line, and keep the filter."""
        self.query_one("#filter").set_class(bool(self.query_one("#filter", Input).value), "open")
        self.query_one(RolloutList).focus()

    def action_filter(self) -> None:
        """Open the line of conditions."""
        line = self.query_one("#filter", Input)
        line.add_class("open")
        line.focus()

    def action_escape(self) -> None:
        """Close the filter, else go from reading to the list, else back."""
        line = self.query_one("#filter", Input)
        if line.has_class("open"):
            line.value = ""
            line.remove_class("open")
            self.query_one(RolloutList).focus()
        elif isinstance(self.focused, Conversation):
            self.query_one(RolloutList).focus()
        else:
            self.call_later(self.app.run_action, "close_screen")

    def action_move(self, by: int) -> None:
        """Go to the next or the previous rollout from wherever the focus is."""
        self.query_one(RolloutList).move(by)

    def action_list(self) -> None:
        """Go to the list."""
        self.query_one(RolloutList).focus()

    def action_order(self) -> None:
        """Take the next order."""
        orders = list(ORDERS)
        self._set_query(order=orders[(orders.index(self._query.order) + 1) % len(orders)])

    def action_fold(self, folded: bool) -> None:
        """Fold or open all sections."""
        self.query_one(Conversation).fold_all(folded)

    def action_markdown(self) -> None:
        """Show texts as Markdown, or as they are."""
        on = self.query_one(Conversation).switch_markdown()
        self.notify("shown as Markdown" if on else "shown as it is", timeout=2)

    def action_logs(self) -> None:
        """Show the logs."""
        if self._logs is None or not self._logs[1]():
            self.notify("there are no logs here", severity="warning", timeout=3)
            return
        self.app.push_screen(LogsScreen(*self._logs, title=self._title))

    def action_copy(self) -> None:
        """Choose what to copy of this rollout."""
        number = self.query_one(RolloutList).current
        if number is not None:
            raw = self.index.raw(number).decode(errors="replace")
            self.app.push_screen(CopyScreen(self.query_one(Conversation).sections, raw))

    def on_unmount(self) -> None:
        """Close the index; workers that read it are cancelled before."""
        self.workers.cancel_node(self)

    def _set_query(self, *, text: str | None = None, order: Order | None = None) -> None:
        text = self.query_one("#filter", Input).value if text is None else text
        self._query = parse_query(text, order or self._query.order)
        self._ask(keep_place=False)

    def _ask(self, *, keep_place: bool) -> None:
        self._asked += 1
        self._asked_at = time.monotonic()
        if self._query.is_all:
            self._searching = None
            self.query_one(RolloutList).show(range(self.index.count), keep_place=keep_place)
        else:
            self._searching = "searching"
            asked, query = self._asked, self._query
            self.run_worker(lambda: self._answer(asked, query), thread=True, exclusive=True, group="query")
        self._show_head()

    def _answer(self, asked: int, query: RolloutQuery) -> None:
        """Find what meets the query; in a thread."""
        if not query.words:
            self.post_message(self.Found(asked, self.index.numbers(query), 0, complete=True))
            return
        worker, told, found = get_current_worker(), time.monotonic(), list[int]()
        for looked, new in self.index.search(query):
            found += new
            if worker.is_cancelled:
                return
            if time.monotonic() - told > _TOLD_EVERY_S:
                told = time.monotonic()
                self.post_message(self.Found(asked, list(found), looked, complete=False))
        self.post_message(self.Found(asked, found, self.index.count, complete=True))

    def _index_on(self) -> None:
        if not any(worker.group == "index" and worker.is_running for worker in self.workers):
            self.run_worker(self._read_file, thread=True, group="index")

    def _read_file(self) -> None:
        """Index what is new, and tell of it now and then; in a thread."""
        worker, told = get_current_worker(), 0.0
        while not worker.is_cancelled and self.index.advance(_LINES_AT_ONCE if self.index.count else _FIRST_LINES):
            if time.monotonic() - told > _TOLD_EVERY_S:
                told = time.monotonic()
                self.post_message(self.Grown())
        if self.index.count != self._seen and not worker.is_cancelled:
            self.post_message(self.Grown())

    def _show_head(self) -> None:
        rows = self.query_one(RolloutList)
        place = f"{rows.cursor + 1:,} of {len(rows.numbers):,}" if rows.numbers else "none"
        parts: list[tuple[str, str]] = [("   ", ""), (place, BOLD), (f" {ORDERS[self._query.order]}", DIM)]
        if not self.index.count:
            parts = [("   no rollout yet", DIM)]
        elif len(rows.numbers) != self.index.count:
            parts.append((f" · filtered from {self.index.count:,}", DIM))
        if self.index.share_done < 0.999:
            parts.append((f" · reading {self.index.share_done:.0%}", DIM))
        if self._searching:
            parts.append((f" · {self._searching}", WRONG if "fail" in self._searching else DIM))
        self.query_one("#head", Static).update(lines([(*cast("tuple[tuple[str, str], ...]", self._title), *parts)]))
