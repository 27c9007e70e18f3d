"""The logs of an evaluation or a run, followed while they grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Log, Static

from prime_cli.viewer.widgets.log_view import LogView
from prime_cli.viewer.widgets.styled import DIM, Line, lines

_LOOK_EVERY_S = 2.0


class LogsScreen(Screen[None]):
    """Shows one log at a time.

    Args:
        root: the folder that their names are relative to.
        find: what finds them; asked again now and then, as workers come and go.
    """

    CSS = """
    LogsScreen #head { height: 1; padding: 0 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,backspace,escape,l", "app.close_screen", "Back"),
    ]

    def __init__(self, root: Path, find: Callable[[], list[Path]], *, title: Line) -> None:
        super().__init__()
        self._root = root
        self._find = find
        self._title = title

    def compose(self) -> ComposeResult:
        """Lay out the logs."""
        yield Static(lines([(*self._title, ("   logs", DIM))]), id="head")
        yield LogView(self._root)
        yield Footer()

    def on_mount(self) -> None:
        """Look for logs, now and later."""
        self._offer()
        self.set_interval(_LOOK_EVERY_S, self._offer)
        self.query_one(Log).focus()

    def _offer(self) -> None:
        self.query_one(LogView).offer(self._find())
