"""Logs in tabs, followed while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Log, Static, Tab, Tabs

from prime_cli.viewer.reading.log_tail import LogTail

_EVERY_S = 0.5
_MAX_LINES = 20_000


class _Lines(Log):
    """A log whose arrows to the left and right go to other logs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "tab(-1)", "Log before", show=False),
        Binding("right", "tab(1)", "Next log", key_display="←→"),
    ]

    def action_tab(self, by: int) -> None:
        """Show another log."""
        view = self.parent
        assert isinstance(view, LogView), "it lies in one"
        view.go(by)


class LogView(Vertical):
    """One log at a time; left and right change it. New logs get a tab when `offer` is told of them."""

    DEFAULT_CSS = """
    LogView { height: 1fr; }
    LogView Log { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    LogView Static { height: 1; color: $foreground-muted; padding: 0 1; }
    """

    def __init__(self, root: Path, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self._root = root
        self._paths: list[Path] = []
        self._tail: LogTail | None = None

    def compose(self) -> ComposeResult:
        """Lay out the tabs over the log."""
        yield Tabs()
        yield Static("no log yet")
        yield _Lines(max_lines=_MAX_LINES)

    def on_mount(self) -> None:
        """Follow the log that is shown."""
        self.set_interval(_EVERY_S, self.read_on)

    def offer(self, paths: Sequence[Path]) -> None:
        """Give each log a tab, those that have one already keep it."""
        tabs = self.query_one(Tabs)
        for path in paths:
            if path not in self._paths:
                self._paths.append(path)
                name = str(path.relative_to(self._root)).removeprefix("logs/").removesuffix(".log")
                tabs.add_tab(Tab(name, id=f"log-{len(self._paths) - 1}"))

    def go(self, by: int) -> None:
        """Show another log."""
        tabs = self.query_one(Tabs)
        if by > 0:
            tabs.action_next_tab()
        else:
            tabs.action_previous_tab()

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show the log of a tab from its end."""
        event.stop()
        self._tail = LogTail(self._paths[int(str(event.tab.id).removeprefix("log-"))])
        self.query_one(Log).clear()
        self.read_on()
        skipped = f" · {self._tail.skipped_bytes:,} bytes before it left out" if self._tail.skipped_bytes else ""
        self.query_one(Static).update(f"{self._tail.path}{skipped}")

    def read_on(self) -> None:
        """Show what is new."""
        if self._tail is not None:
            lines = self._tail.read()
            if lines:
                self.query_one(Log).write_lines(lines)
