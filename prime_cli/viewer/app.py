"""The viewer: environments, models and runs on the left; the rollouts of a run; the messages of a rollout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.markup import escape
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, Header, Static, Tree

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import error_text
from prime_cli.evals.store import EvalDirectory
from prime_cli.viewer.index import RolloutFile, message_text, messages_of, reward_text

_ROWS_AT_ONCE = 200
_ROLE_STYLES = {"system": "bold magenta", "user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}


class EvalViewer(App[None]):
    """Looks at evaluations on disk.

    Args:
        directories: the evaluations to show, newest first.
    """

    TITLE = "prime eval view"
    CSS = """
    #runs { width: 34%; min-width: 24; border-right: solid $primary; }
    #rollouts { height: 40%; border-bottom: solid $primary; }
    #detail { height: 1fr; padding: 0 1; }
    #summary { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "move(1)", "Next rollout"),
        Binding("p", "move(-1)", "Previous"),
        Binding("b,backspace", "runs", "Back"),
        Binding("pagedown", "scroll_detail(1)", "Page down", show=False),
        Binding("pageup", "scroll_detail(-1)", "Page up", show=False),
        Binding("d", "switch_light", "Light/dark"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, directories: Sequence[EvalDirectory]) -> None:
        super().__init__()
        self._directories = directories
        self._file: RolloutFile | None = None
        self._shown = 0

    def compose(self) -> ComposeResult:
        """Lay out the three panes."""
        yield Header()
        with Horizontal():
            yield Tree("evaluations", id="runs")
            with Vertical():
                yield Static("choose a run on the left", id="summary")
                yield DataTable(id="rollouts", cursor_type="row")
                with VerticalScroll(id="detail"):
                    yield Static("", id="messages")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the tree; the newest run is opened at once."""
        table = self.query_one("#rollouts", DataTable)
        table.add_columns("#", "example", "reward", "answer")
        tree = self.query_one("#runs", Tree)
        tree.root.expand()
        branches: dict[tuple[str, ...], Any] = {}
        for directory in self._directories:
            metadata = read_leniently(directory)
            environment, model = str(metadata.get("env_id", "?")), str(metadata.get("model", "?"))
            if (environment,) not in branches:
                branches[(environment,)] = tree.root.add(escape(environment), expand=True)
            if (environment, model) not in branches:
                branches[(environment, model)] = branches[(environment,)].add(escape(model), expand=True)
            branches[(environment, model)].add_leaf(run_label(directory.path.name, metadata), data=directory)
        if self._directories:
            self._open(self._directories[0])
        tree.focus()

    def on_tree_node_selected(self, event: Tree.NodeSelected[EvalDirectory]) -> None:
        """Open the run that was chosen, and go to its rollouts."""
        if event.node.data is not None:
            self._open(event.node.data)
            self.query_one("#rollouts").focus()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the rollout under the cursor; read on when the cursor nears the end of what is listed."""
        if self._file is None or event.cursor_row >= self._shown:
            return
        if event.cursor_row >= self._shown - 1:
            self._list_more()
        self.query_one("#messages", Static).update(rollout_text(self._file[event.cursor_row]))
        self.query_one("#detail", VerticalScroll).scroll_home(animate=False)

    def action_move(self, by: int) -> None:
        """Go to the next or the previous rollout from wherever the focus is."""
        table = self.query_one("#rollouts", DataTable)
        table.move_cursor(row=max(0, min(table.row_count - 1, table.cursor_row + by)))

    def action_runs(self) -> None:
        """Go back to the tree of runs."""
        self.query_one("#runs").focus()

    def action_scroll_detail(self, pages: int) -> None:
        """Scroll the messages by a page."""
        detail = self.query_one("#detail", VerticalScroll)
        detail.scroll_relative(y=pages * detail.size.height, animate=False)

    def action_switch_light(self) -> None:
        """Switch between the dark and the light theme."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def _open(self, directory: EvalDirectory) -> None:
        self._file = RolloutFile(directory.results)
        self._shown = 0
        self.query_one("#rollouts", DataTable).clear()
        self.query_one("#messages", Static).update("")
        self.query_one("#summary", Static).update(summary_text(read_leniently(directory)))
        self._list_more()

    def _list_more(self) -> None:
        assert self._file is not None, "a run is open"
        table = self.query_one("#rollouts", DataTable)
        until = min(len(self._file), self._shown + _ROWS_AT_ONCE)
        for index in range(self._shown, until):
            reward, words, failed = self._file.preview(index)
            example = str(self._file[index].get("example_id", ""))
            table.add_row(str(index), example, Text(reward, style="red" if failed else ""), Text(words))
        self._shown = until


def read_leniently(directory: EvalDirectory) -> dict[str, Any]:
    """Return the metadata of an evaluation; of one that cannot be read, what is known of it: nothing."""
    try:
        return directory.read_metadata()
    except PrimeError:
        return {}


def run_label(name: str, metadata: dict[str, Any]) -> Text:
    """Return how a run is listed: its id, mean reward and number of rollouts."""
    reward = metadata.get("avg_reward")
    shown = "  -  " if reward is None else f"{reward:.3f}"
    return Text.assemble((shown, "bold"), f"  n={metadata.get('num_rollouts', '?')}  ", (name, "dim"))


def summary_text(metadata: dict[str, Any]) -> Text:
    """Return the settings and averages of a run in two lines."""
    reward, error = metadata.get("avg_reward"), metadata.get("reward_standard_error")
    mean = "no reward" if reward is None else f"reward {reward:.3f}" + (f" ± {error:.3f}" if error is not None else "")
    metrics = "  ".join(f"{name} {value:.3f}" for name, value in (metadata.get("avg_metrics") or {}).items())
    sampling = json.dumps(metadata.get("sampling_args") or {})
    return Text.assemble(
        (mean, "bold"), f"  rollouts {metadata.get('num_rollouts', '?')}  errors {metadata.get('num_errors', 0)}\n",
        f"{metrics}  sampling {sampling}  {metadata.get('date', '')}",
    )  # fmt: skip


def rollout_text(row: dict[str, Any]) -> Text:
    """Return a rollout for reading: its messages with roles and tool calls, then error, reward and metrics."""
    text = Text()
    for message in [*messages_of(row, "prompt", "user"), *messages_of(row, "completion", "assistant")]:
        role = str(message.get("role", "?"))
        text.append(f"{role}\n", style=_ROLE_STYLES.get(role, "bold"))
        if message.get("reasoning_content"):
            text.append(f"{message['reasoning_content']}\n", style="dim italic")
        text.append(f"{message_text(message)}\n")
        for call in message.get("tool_calls") or []:
            text.append(f"call {call if isinstance(call, str) else json.dumps(call)}\n", style="yellow")
        text.append("\n")
    if row.get("error"):
        text.append(f"error: {error_text(row['error'])}\n", style="bold red")
    else:
        text.append(f"reward {reward_text(row)}\n", style="bold")
    for name, value in (row.get("metrics") or {}).items():
        text.append(f"{name} {value}\n")
    if row.get("answer") is not None:
        text.append(f"answer {row['answer']}\n", style="dim")
    return text
