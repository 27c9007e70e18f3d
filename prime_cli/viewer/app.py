"""The viewer as an application: its first screen, the keys that work everywhere, the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Middle
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from prime_cli.viewer.reading.workspace import RUN_FOLDERS, Scope, read_contents
from prime_cli.viewer.screens.browser import BrowserScreen, rollouts_of_evaluation

LEAST_COLUMNS, LEAST_ROWS = 80, 24
_DARK, _LIGHT = "textual-dark", "textual-light"


class Viewer(App[None]):
    """Looks at evaluations and training runs.

    Args:
        first: makes the first screen; those that are opened from it lie above it.
    """

    TITLE = "prime"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    CSS = """
    Footer { background: $panel; }
    Tabs { height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Pane before", show=False),
        Binding("d", "switch_light", "Light/dark", show=False),
        Binding("question_mark", "show_help_panel", "Keys", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, first: Callable[[], Screen[None]]) -> None:
        super().__init__()
        self._first = first

    def on_mount(self) -> None:
        """Open the first screen."""
        self.push_screen(self._first())

    def on_resize(self, event: events.Resize) -> None:
        """Say so when the terminal is too small to show anything well."""
        small = event.size.width < LEAST_COLUMNS or event.size.height < LEAST_ROWS
        shown = isinstance(self.screen, TooSmallScreen)
        if small and not shown:
            self.push_screen(TooSmallScreen())
        elif shown and not small:
            self.pop_screen()

    def action_close_screen(self) -> None:
        """Close the screen; the first one stays."""
        if len(self.screen_stack) > 2:
            self.pop_screen()

    def action_switch_light(self) -> None:
        """Switch between the dark and the light theme."""
        self.theme = _DARK if self.theme == _LIGHT else _LIGHT

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """List what the keys of this screen do, then what Textual offers everywhere."""
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.description and active.enabled and binding.action not in ("none", "command_palette"):
                key = self.get_key_display(binding)

                def run(action: str = binding.action, node: object = active.node) -> None:
                    self.call_later(self.run_action, action, node)

                yield SystemCommand(binding.description, f"key {key}", run)
        yield from super().get_system_commands(screen)


class TooSmallScreen(ModalScreen[None]):
    """Stands over everything while the terminal has too few columns or rows."""

    CSS = """
    TooSmallScreen { background: $background; align: center middle; }
    TooSmallScreen Static { text-align: center; }
    """

    def compose(self) -> ComposeResult:
        """Say what is needed."""
        with Middle():
            yield Static(f"prime needs {LEAST_COLUMNS} columns and {LEAST_ROWS} rows; make the terminal larger")


def view_evaluations(path: Path | None) -> Viewer:
    """Return the viewer on the evaluation in a folder, on all below it, or on those of the workspace.

    Raises:
        PrimeError: there is none.
    """
    scope = Scope(path=path)
    contents = read_contents(scope)
    if path is not None and len(contents.evaluations) == 1 and contents.evaluations[0].path == path:
        return Viewer(lambda: rollouts_of_evaluation(contents.evaluations[0]))
    return Viewer(lambda: BrowserScreen(scope, contents))


def view_runs(run: Path | None, folder: Path) -> Viewer:
    """Return the viewer on one training run, or on all of a folder."""
    from prime_cli.viewer.screens.training import TrainingScreen

    if run is not None:
        return Viewer(lambda: TrainingScreen(run))
    return Viewer(lambda: BrowserScreen(Scope(evaluations=False, run_folders=[folder], hub=False)))


def view_workspace() -> Viewer:
    """Return the viewer on everything in the workspace, and on the hub."""
    return Viewer(lambda: BrowserScreen(Scope(run_folders=RUN_FOLDERS, environments=True)))
