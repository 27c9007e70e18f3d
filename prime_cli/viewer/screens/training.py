"""A training run, followed while it goes on: curves, figures, alarms, its rollouts by step, logs, settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from prime_cli.core.errors import PrimeError
from prime_cli.rl.alarms import Alarm
from prime_cli.rl.display import figure_rows
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.runs import RunFacts, read_run_config
from prime_cli.viewer.reading.run_watch import RolloutFile, RunView, RunWatch
from prime_cli.viewer.screens.rollouts import RolloutsScreen
from prime_cli.viewer.widgets.curve_view import CurveView
from prime_cli.viewer.widgets.log_view import LogView
from prime_cli.viewer.widgets.run_details import STATE_STYLES
from prime_cli.viewer.widgets.styled import BOLD, DIM, WRONG, Line, lines

_EVERY_S = 1.0
_TABS = ("curves", "samples", "logs", "settings")
_STYLES = {"bold red": WRONG, "red": WRONG, "bold": BOLD, "cyan": "$text-accent"}


class TrainingScreen(Screen[None]):
    """Shows one run directory."""

    CSS = """
    TrainingScreen #head { height: 1; padding: 0 1; background: $panel; }
    TrainingScreen #figures { height: auto; max-height: 8; padding: 0 1; }
    TrainingScreen TabbedContent { height: 1fr; }
    TrainingScreen TabPane { padding: 0; height: 1fr; }
    TrainingScreen ContentSwitcher { height: 1fr; }
    TrainingScreen #chart { layout: horizontal; height: 1fr; }
    TrainingScreen #metrics { width: 38; border-right: solid $primary-muted; overflow-x: hidden;
                              scrollbar-size-vertical: 1; }
    TrainingScreen #steps { height: 1fr; scrollbar-size-vertical: 1; }
    TrainingScreen #doing { height: auto; max-height: 6; padding: 0 1; background: $surface; }
    TrainingScreen #settings-text { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab('curves')", "Curves"),
        Binding("2", "tab('samples')", "Samples"),
        Binding("3,l", "tab('logs')", "Logs", key_display="3"),
        Binding("4", "tab('settings')", "Settings"),
        Binding("c", "copy", "Copy path", show=False),
        Binding("b,backspace,escape", "app.close_screen", "Back"),
    ]

    class Looked(Message):
        """The files of the run were read again."""

        def __init__(self, view: RunView) -> None:
            super().__init__()
            self.view = view

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._run = RunDirectory(path)
        self._watch = RunWatch(self._run)
        self._view: RunView | None = None
        self._files: list[RolloutFile] = []

    def compose(self) -> ComposeResult:
        """Lay out the tabs between the figures and what the processes do."""
        yield Static(self._run.path.name, id="head")
        yield Static("", id="figures")
        with TabbedContent(initial="curves"):
            with TabPane("Curves", id="curves"), Container(id="chart"):
                yield DataTable[Any](id="metrics", cursor_type="row", show_header=False)
                yield CurveView(id="curve")
            with TabPane("Samples", id="samples"):
                yield DataTable[str](id="steps", cursor_type="row")
            with TabPane("Logs", id="logs"):
                yield LogView(self._run.path)
            with TabPane("Settings", id="settings"), VerticalScroll():
                yield Static("", id="settings-text")
        yield Static("", id="doing")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow the files."""
        self.query_one("#metrics", DataTable).add_columns(("now", "value"), ("figure", "name"))
        columns = (("rollouts of", "what"), ("count", "count"), ("mean reward", "reward"), ("errors", "errors"))
        self.query_one("#steps", DataTable).add_columns(*columns)
        self.query_one("#settings-text", Static).update(lines(_settings(self._run)))
        self.query_one("#metrics").focus()
        self._look()
        self.set_interval(_EVERY_S, self._look)

    def on_training_screen_looked(self, event: Looked) -> None:
        """Show what is new."""
        view, before = event.view, self._view
        self._view = view
        self.query_one("#head", Static).update(lines([_head(view.facts)]))
        self.query_one("#figures", Static).update(lines(_figures(view)))
        self.query_one("#doing", Static).update(lines(_doing(view)))
        self.query_one(LogView).offer(view.logs)
        if before is None or before.num_records != view.num_records:
            self._show_metrics(view)
        self._show_steps(view.files)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Draw the curve of the figure under the cursor."""
        if event.data_table.id == "metrics":
            self._show_curve()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the rollouts of a step."""
        if event.data_table.id == "steps" and event.cursor_row < len(self._files):
            file = self._files[event.cursor_row]
            title: Line = ((self._run.path.name, BOLD), (f" · {file.name}", DIM))
            logs = (self._run.path, self._watch.logs)
            self.app.push_screen(RolloutsScreen(file.path, title, logs=logs))

    def action_tab(self, name: str) -> None:
        """Go to a tab, and into what is in it."""
        self.query_one(TabbedContent).active = name
        inside = {"curves": "#metrics", "samples": "#steps", "logs": "Log", "settings": "#settings VerticalScroll"}
        self.query_one(inside[name]).focus()

    def action_copy(self) -> None:
        """Copy the path of the run."""
        self.app.copy_to_clipboard(str(self._run.path))
        self.notify(f"copied {self._run.path}", timeout=3, markup=False)

    def _look(self) -> None:
        if not any(worker.group == "look" and worker.is_running for worker in self.workers):
            self.run_worker(self._read, thread=True, group="look")

    def _read(self) -> None:
        try:
            self.post_message(self.Looked(self._watch.look()))
        except (PrimeError, OSError, ValueError, KeyError) as error:
            self.app.call_from_thread(self.query_one("#figures", Static).update, f"the run cannot be read: {error}")

    def _show_metrics(self, view: RunView) -> None:
        table = self.query_one("#metrics", DataTable)
        for name in view.names:
            alarmed = any(alarm.figure == name for alarm in view.alarms)
            value = Text(f"{_figure(view.latest[name]):>9}", style="bold red" if alarmed else "")
            if name in table.rows:
                table.update_cell(name, "value", value)
            else:
                table.add_row(value, name, key=name)
        self._show_curve()

    def _show_curve(self) -> None:
        table = self.query_one("#metrics", DataTable)
        if self._view is None or not table.is_valid_row_index(table.cursor_row):
            return
        name = str(table.coordinate_to_cell_key((table.cursor_row, 0)).row_key.value)  # type: ignore[arg-type]
        points = [(step["step"], float(step[name])) for step in self._view.steps if name in step]
        alarm = next((alarm for alarm in self._view.alarms if alarm.figure == name), None)
        self.query_one(CurveView).show(name, points, alarmed=alarm is not None)

    def _show_steps(self, files: list[RolloutFile]) -> None:
        if files == self._files:
            return
        table = self.query_one("#steps", DataTable)
        row = table.cursor_row
        self._files = files
        table.clear()
        for file in files:
            table.add_row(file.name, file.count, file.reward, file.errors)
        table.move_cursor(row=row)


def _head(facts: RunFacts) -> Line:
    return (
        (facts.path.name, BOLD), ("  ", ""), (facts.state, f"bold {STATE_STYLES.get(facts.state, '')}"),
        f"  step {facts.steps}/{facts.max_steps}  ", (f"{facts.environment} · {facts.model}", DIM),
    )  # fmt: skip


def _figures(view: RunView) -> Iterator[Line]:
    if not view.steps:
        yield (("no step is finished yet", DIM),)
        return
    for row in figure_rows(view.latest, {alarm.figure for alarm in view.alarms}):
        parts: list[tuple[str, str]] = []
        for name, value, style in row:
            parts += [(f"{name} ", DIM), (f"{value}   ", _STYLES.get(style, style))]
        yield parts
    yield from (_alarm_line(alarm) for alarm in view.alarms)


def _alarm_line(alarm: Alarm) -> Line:
    return ((f"! {alarm.words}", WRONG),)


def _doing(view: RunView) -> Iterator[Line]:
    if view.facts.state == "finished":
        return
    for name, doing, seconds in view.doing:
        yield ((f"{name:<13}", BOLD), doing, (f"  {seconds:.0f} s", DIM))


def _settings(run: RunDirectory) -> Iterator[Line]:
    try:
        config = read_run_config(run)
    except PrimeError as error:
        yield ((error.message, WRONG),)
        return
    for name, value in _flat(config, ""):
        yield ((f"{name} ", DIM), "= ", value)


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{number}]")
    else:
        yield name, json.dumps(value, ensure_ascii=False)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
