"""The first screen: environments with their models and evaluations, training runs, the hub; details beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Static, Tree
from textual.widgets.tree import TreeNode
from textual.worker import get_current_worker

from prime_cli.core.errors import PrimeError
from prime_cli.environments.local import LocalEnvironment
from prime_cli.rl.runs import RunFacts
from prime_cli.viewer.reading.evaluations import Evaluation, by_environment
from prime_cli.viewer.reading.hub_runs import HubEvaluation, fetch, list_hub_evaluations
from prime_cli.viewer.reading.rollout_index import RolloutIndex, index_cache
from prime_cli.viewer.reading.workspace import Contents, Scope, read_contents, read_environments
from prime_cli.viewer.screens.logs import LogsScreen
from prime_cli.viewer.screens.rollouts import RolloutsScreen
from prime_cli.viewer.widgets.entry_details import nothing_here, other_details
from prime_cli.viewer.widgets.evaluation_details import evaluation_details
from prime_cli.viewer.widgets.run_details import run_details
from prime_cli.viewer.widgets.styled import BOLD, DIM, Line, end_of

_LOOK_EVERY_S = 3.0
_DETAILS_EVERY_S = 0.5
_LINES_AT_ONCE = 400
_MODEL = 28
_STATES = {"finished": ("✓", "green"), "running": ("▶", "cyan"), "stopped": ("■", "yellow")}


@dataclass
class _Entry:
    """What a node stands for. `key` names it across refreshes."""

    key: str
    label: Text
    what: Any = None
    children: list[_Entry] = field(default_factory=list)


class BrowserScreen(Screen[None]):
    """Everything there is to look at.

    Args:
        scope: what is shown.
        contents: what was found already; looked for again now and then.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - no class variable in textual
    CSS = """
    BrowserScreen #panes { layout: horizontal; }
    BrowserScreen #tree { width: 46%; border-right: solid $primary-muted; background: $surface; padding: 0 1;
                          overflow-x: hidden; scrollbar-size-vertical: 1; }
    BrowserScreen.-wide #tree { width: 40%; }
    BrowserScreen #side { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "none", "Open", show=True, key_display="⏎"),
        Binding("v", "compare", "Compare"),
        Binding("l", "logs", "Logs"),
        Binding("c", "copy", "Copy path"),
        Binding("left", "parent", "Parent", show=False),
        Binding("right", "child", "Expand", show=False),
        Binding("r", "refresh", "Refresh", show=False),
        Binding("b,backspace,escape", "app.close_screen", "Back", show=False),
    ]

    class Found(Message):
        """What there is was looked for."""

        def __init__(self, contents: Contents) -> None:
            super().__init__()
            self.contents = contents

    class FoundElsewhere(Message):
        """The environments, or what the hub answered."""

        def __init__(self, apply: Callable[[], None]) -> None:
            super().__init__()
            self.apply = apply

    class Details(Message):
        """Details of a node."""

        def __init__(self, key: str, content: Content) -> None:
            super().__init__()
            self.key = key
            self.content = content

    def __init__(self, scope: Scope, contents: Contents | None = None) -> None:
        super().__init__()
        self._scope = scope
        self._contents = contents
        self._environments: list[LocalEnvironment] = []
        self._hub: tuple[str, list[HubEvaluation] | str] | None = None
        self._drawn: list[tuple[str, str]] = []
        self._shut: set[str] = set()
        self._marked: Evaluation | None = None

    def compose(self) -> ComposeResult:
        """Lay out the tree beside the details."""
        with Container(id="panes"):
            tree: Tree[_Entry] = Tree("", id="tree")
            tree.show_root = False
            tree.guide_depth = 2
            yield tree
            with VerticalScroll(id="side", can_focus=True):
                yield Static("", id="details")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is known, and look for the rest beside that."""
        if self._contents is not None:
            self._draw()
        self.query_one(Tree).focus()
        self._look()
        self.set_interval(_LOOK_EVERY_S, self._look)
        if self._scope.environments:
            self.run_worker(self._ask_for_environments, thread=True, group="environments")
        if self._scope.hub:
            self.run_worker(self._ask_hub, thread=True, group="hub")

    def on_browser_screen_found(self, event: Found) -> None:
        """Show what is new."""
        if event.contents != self._contents:
            self._contents = event.contents
            self._draw()

    def on_browser_screen_found_elsewhere(self, event: FoundElsewhere) -> None:
        """Show it beside the rest."""
        event.apply()
        self._draw()

    def on_browser_screen_details(self, event: Details) -> None:
        """Show the details, if the cursor still stands there."""
        entry = self._entry
        if entry is not None and entry.key == event.key:
            self.query_one("#details", Static).update(event.content)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[_Entry]) -> None:
        """Show the details of the node under the cursor."""
        self._show_details(event.node.data)

    def on_tree_node_collapsed(self, event: Tree.NodeCollapsed[_Entry]) -> None:
        """Leave closed what was closed."""
        if event.node.data:
            self._shut.add(event.node.data.key)

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[_Entry]) -> None:
        """Leave open what was opened."""
        if event.node.data:
            self._shut.discard(event.node.data.key)

    def on_tree_node_selected(self, event: Tree.NodeSelected[_Entry]) -> None:
        """Open what was chosen."""
        what = event.node.data.what if event.node.data else None
        if isinstance(what, Evaluation):
            self.app.push_screen(rollouts_of_evaluation(what))
        elif isinstance(what, RunFacts):
            from prime_cli.viewer.screens.training import TrainingScreen

            self.app.push_screen(TrainingScreen(what.path))
        elif isinstance(what, HubEvaluation):
            self._open_hub(what)

    def action_compare(self) -> None:
        """Mark the evaluation under the cursor; the second one is compared with the first."""
        what = self._entry.what if self._entry else None
        if not isinstance(what, Evaluation):
            self.notify("put the cursor on an evaluation", severity="warning", timeout=3)
        elif self._marked is None or self._marked.path == what.path:
            self._marked = what if self._marked is None else None
            if self._marked:
                self.notify(f"{what.path.name} is marked; press v on the one to compare it with", timeout=4)
            self._draw()
        else:
            from prime_cli.viewer.screens.compare import CompareScreen

            marked, self._marked = self._marked, None
            self._draw()
            self.app.push_screen(CompareScreen(marked, what))

    def action_logs(self) -> None:
        """Show the logs of the evaluation under the cursor."""
        what = self._entry.what if self._entry else None
        if isinstance(what, Evaluation) and what.logs:
            self.app.push_screen(LogsScreen(what.path, lambda: what.logs, title=_title(what)))
        else:
            self.notify("there are no logs here", severity="warning", timeout=3)

    def action_copy(self) -> None:
        """Copy the path of what is under the cursor."""
        path = getattr(self._entry.what if self._entry else None, "path", None)
        if isinstance(path, Path):
            self.app.copy_to_clipboard(str(path))
            self.notify(f"copied {path}", timeout=3, markup=False)

    def action_parent(self) -> None:
        """Close the node, or go to its parent."""
        tree = self.query_one(Tree)
        node = tree.cursor_node
        if node is not None and node.is_expanded and node.children:
            node.collapse()
        elif node is not None and node.parent is not None and node.parent is not tree.root:
            tree.move_cursor(node.parent)

    def action_child(self) -> None:
        """Open the node, or go to its first child."""
        tree = self.query_one(Tree)
        node = tree.cursor_node
        if node is not None and node.children:
            if node.is_expanded:
                tree.move_cursor(node.children[0])
            else:
                node.expand()

    def action_refresh(self) -> None:
        """Look again, at the hub too."""
        self._look()
        if self._scope.hub:
            self.run_worker(self._ask_hub, thread=True, group="hub", exclusive=True)

    def on_screen_suspend(self) -> None:
        """Leave the disk to the screen above."""
        for worker in self.workers:
            if worker.group == "details":
                worker.cancel()

    @property
    def _entry(self) -> _Entry | None:
        node: TreeNode[_Entry] | None = self.query_one(Tree).cursor_node
        return node.data if node is not None else None

    def _look(self) -> None:
        if self.is_current or self._contents is None:
            self.run_worker(self._read, thread=True, exclusive=True, group="look")

    def _read(self) -> None:
        try:
            self.post_message(self.Found(read_contents(self._scope)))
        except PrimeError:  # the folder was removed while it was looked at
            self.post_message(self.Found(Contents()))

    def _ask_for_environments(self) -> None:
        found = read_environments()

        def apply() -> None:
            self._environments = found

        self.post_message(self.FoundElsewhere(apply))

    def _ask_hub(self) -> None:
        answer: tuple[str, list[HubEvaluation] | str] | None
        try:
            answer = list_hub_evaluations()
        except PrimeError as error:
            answer = "hub", error.message

        def apply() -> None:
            self._hub = answer

        self.post_message(self.FoundElsewhere(apply))

    def _open_hub(self, evaluation: HubEvaluation) -> None:
        def bring() -> None:
            try:
                here = fetch(evaluation)
            except PrimeError as error:
                self.app.call_from_thread(self.notify, error.message, severity="error", timeout=8, markup=False)
            else:
                self.app.call_from_thread(self.app.push_screen, rollouts_of_evaluation(here))

        self.notify(f"bringing {evaluation.rollouts:,} rollouts here", timeout=3)
        self.run_worker(bring, thread=True, exclusive=True, group="fetch")

    def _show_details(self, entry: _Entry | None) -> None:
        pane = self.query_one("#details", Static)
        what = entry.what if entry else None
        self.query_one("#side").scroll_home(animate=False)
        if entry is None or what is None:
            pane.update("")
        elif isinstance(what, Evaluation):
            pane.update(evaluation_details(what, None))
            self.run_worker(lambda: self._read_rollouts(entry.key, what), thread=True, exclusive=True, group="details")
        elif isinstance(what, RunFacts):
            width = max(20, self.query_one("#side").size.width - 2)
            self.run_worker(
                lambda: self.post_message(self.Details(entry.key, run_details(what, width))),
                thread=True, exclusive=True, group="details",
            )  # fmt: skip
        else:
            pane.update(other_details(what))

    def _read_rollouts(self, key: str, evaluation: Evaluation) -> None:
        """Index the rollouts, and show histogram and metrics as more of them are known; in a thread."""
        worker = get_current_worker()
        index = RolloutIndex(evaluation.results, cache=index_cache())
        shown, told = -1, time.monotonic()
        while not worker.is_cancelled:
            more = index.advance(_LINES_AT_ONCE)
            # The figures cost more, the more rollouts there are: they wait until there are half as many more.
            due = time.monotonic() - told > _DETAILS_EVERY_S and index.count > 1.5 * shown
            if index.count != shown and (due or not more):
                shown, told = index.count, time.monotonic()
                self.post_message(self.Details(key, evaluation_details(evaluation, index)))
            if not more:
                break
        index.close()

    def _draw(self) -> None:
        """Draw the tree anew if anything in it changed; the cursor and what is closed stay as they were."""
        entries = list(self._entries())
        flat = [(entry.key, entry.label.plain) for entry in _flattened(entries)]
        if flat == self._drawn:
            return
        self._drawn = flat
        tree: Tree[_Entry] = self.query_one(Tree)
        key = self._entry.key if self._entry else ""
        tree.clear()
        nodes: dict[str, TreeNode[_Entry]] = {}
        for entry in entries:
            self._add(tree.root, entry, nodes)
        tree.root.expand()
        leaves = (node for node in nodes.values() if isinstance(node.data and node.data.what, Evaluation | RunFacts))
        target = nodes.get(key) or next(leaves, None) or next(iter(nodes.values()), None)
        if target is not None:
            self.call_after_refresh(tree.move_cursor, target)
        else:
            self.query_one("#details", Static).update(nothing_here())

    def _add(self, parent: TreeNode[_Entry], entry: _Entry, nodes: dict[str, TreeNode[_Entry]]) -> None:
        if not entry.children:
            nodes[entry.key] = parent.add_leaf(entry.label, data=entry)
            return
        node = parent.add(entry.label, data=entry, expand=entry.key not in self._shut)
        nodes[entry.key] = node
        for child in entry.children:
            self._add(node, child, nodes)

    def _entries(self) -> Iterator[_Entry]:
        contents = self._contents or Contents()
        yield from self._environment_entries(contents)
        if contents.runs:
            runs = [_run_entry(run) for run in contents.runs]
            yield _Entry("runs", Text("training runs", style="bold"), "Training runs, the newest first.", runs)
        if self._hub is not None:
            address, found = self._hub
            children = [] if isinstance(found, str) else [_hub_entry(evaluation) for evaluation in found]
            words = found if isinstance(found, str) else f"Your evaluations on {address}, the newest first."
            name = address.split("//")[-1].removesuffix("/")
            yield _Entry("hub", Text(f"hub · {name}", style="bold"), words, children)

    def _environment_entries(self, contents: Contents) -> Iterator[_Entry]:
        tree = by_environment(contents.evaluations)
        local = {environment.name: environment for environment in self._environments}
        for name in dict.fromkeys([*tree, *local]):
            label = Text(name, style="bold")
            version = local[name].folder_version or local[name].installed_version if name in local else None
            if version:
                label.append(f"  {version}", style="dim")
            models = [
                _Entry(f"model:{name}:{model}", Text(end_of(model, _MODEL), style="italic"), (name, model, runs),
                       [self._evaluation_entry(run) for run in runs])
                for model, runs in tree.get(name, {}).items()
            ]  # fmt: skip
            yield _Entry(f"environment:{name}", label, local.get(name) or (name, None, tree.get(name, {})), models)

    def _evaluation_entry(self, evaluation: Evaluation) -> _Entry:
        colour = "dim" if evaluation.mean is None else "green" if evaluation.mean >= 0.5 else "yellow"
        label = Text()
        if self._marked and self._marked.path == evaluation.path:
            label.append("◆ ", style="bold magenta")
        label.append(evaluation.mean_text, style=colour)
        counts, _, failed = evaluation.count_text.partition(" ")
        label.append(f"  {counts}")
        if failed:
            label.append(f" {failed.split()[0]}✗", style="red")
        label.append(f"  {evaluation.path.name}", style="dim")
        return _Entry(f"evaluation:{evaluation.path}", label, evaluation)


def rollouts_of_evaluation(evaluation: Evaluation) -> RolloutsScreen:
    """Return the screen with the rollouts of an evaluation."""
    return RolloutsScreen(evaluation.results, _title(evaluation), logs=(evaluation.path, lambda: evaluation.logs))


def _title(evaluation: Evaluation) -> Line:
    return ((evaluation.environment, BOLD), (f" · {end_of(evaluation.model, 28)} · {evaluation.path.name}", DIM))


def _run_entry(run: RunFacts) -> _Entry:
    label = Text()
    mark, colour = _STATES.get(run.state, ("?", ""))
    label.append(f"{mark} ", style=colour)
    label.append(f"{run.steps}/{run.max_steps}")
    if run.first_reward is not None and run.last_reward is not None:
        label.append(f"  {run.first_reward:.2f}→{run.last_reward:.2f}", style="green")
    label.append(f"  {run.path.name}", style="dim")
    return _Entry(f"run:{run.path}", label, run)


def _hub_entry(evaluation: HubEvaluation) -> _Entry:
    label = Text("-" if evaluation.score is None else f"{evaluation.score:.3f}", style="green")
    label.append(f"  n={evaluation.rollouts:,}  {evaluation.environment}", style="")
    label.append(f"  {evaluation.model}", style="dim")
    return _Entry(f"hub:{evaluation.id}", label, evaluation)


def _flattened(entries: list[_Entry]) -> Iterator[_Entry]:
    for entry in entries:
        yield entry
        yield from _flattened(entry.children)
