"""Two evaluations side by side: the examples of both, those that flipped first, and both conversations."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from prime_cli.viewer.reading.evaluations import Evaluation
from prime_cli.viewer.reading.pairs import Pair, Pairing, pair_up
from prime_cli.viewer.reading.rollout_index import RolloutIndex, index_cache
from prime_cli.viewer.reading.sections import sections_of
from prime_cli.viewer.screens.copy import CopyScreen
from prime_cli.viewer.widgets.conversation import Conversation
from prime_cli.viewer.widgets.row_list import RowList
from prime_cli.viewer.widgets.styled import BAD, BOLD, DIM, GOOD, Line, end_of, lines, reward_style

_LINES_AT_ONCE = 500


class PairList(RowList):
    """The examples with the mean reward in both, and what came of it."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self.pairs: list[Pair] = []

    def header(self) -> str:
        """Return the heads of the columns."""
        return f"{'example':>10}{'A':>8}{'B':>8}{'B-A':>9}"

    def row(self, number: int, place: int) -> Text:
        """Return the row of an example."""
        pair = self.pairs[number]
        text = Text(f"{pair.example[:10]:>10}", no_wrap=True)
        for mean in (pair.mean_a, pair.mean_b):
            shown = "error" if mean is None else f"{mean:.3f}"
            text.append(f"{shown:>8}", style=self.style_of("failed" if mean is None else "dim"))
        if pair.difference is not None:
            kind = "good" if pair.difference > 0 else "bad" if pair.difference < 0 else "dim"
            text.append(f"{pair.difference:>+9.3f}", style=self.style_of(kind))
        if pair.flipped:
            text.append(f"  {pair.flipped}", style=self.style_of("good" if pair.flipped == "now right" else "failed"))
        return text


class CompareScreen(Screen[None]):
    """Compares evaluation B with evaluation A."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - no class variable in textual
    CSS = """
    CompareScreen #head { height: auto; padding: 0 1; background: $panel; }
    CompareScreen.-narrow #pairs { height: 30%; border-bottom: solid $primary-muted; }
    CompareScreen.-wide #panes { layout: horizontal; }
    CompareScreen.-wide #pairs { width: 52; border-right: solid $primary-muted; }
    CompareScreen #both { height: 1fr; width: 1fr; }
    CompareScreen .title { height: 1; padding: 0 1; background: $surface; }
    CompareScreen #side-a { border-right: solid $primary-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "move(1)", "Next", key_display="n/p"),
        Binding("p", "move(-1)", "Previous", show=False),
        Binding("f", "only_flipped", "Flipped"),
        Binding("right_square_bracket", "rollout(1)", "Rollout", key_display="[ ]"),
        Binding("left_square_bracket", "rollout(-1)", "Rollout before", show=False),
        Binding("e", "fold(False)", "Open/fold", key_display="e/x"),
        Binding("x", "fold(True)", "Fold all", show=False),
        Binding("c", "copy", "Copy", show=False),
        Binding("b,backspace,escape", "app.close_screen", "Back"),
    ]

    class Paired(Message):
        """Both files were read, as far as it says."""

        def __init__(self, pairing: Pairing | None, words: str) -> None:
            super().__init__()
            self.pairing = pairing
            self.words = words

    def __init__(self, a: Evaluation, b: Evaluation) -> None:
        super().__init__()
        self._both = (a, b)
        self._indexes = tuple(RolloutIndex(one.results, cache=index_cache()) for one in self._both)
        self._pairing: Pairing | None = None
        self._only_flipped = False
        self._which = 0

    def compose(self) -> ComposeResult:
        """Lay out the examples beside or over the two conversations."""
        yield Static("", id="head")
        with Container(id="panes"):
            yield PairList(id="pairs")
            with Horizontal(id="both"):
                for side in "ab":
                    with Vertical(id=f"side-{side}"):
                        yield Static("", id=f"title-{side}", classes="title")
                        yield Conversation(id=f"conversation-{side}")
        yield Footer()

    def on_mount(self) -> None:
        """Read both files."""
        self.query_one(PairList).focus()
        self.run_worker(self._read, thread=True, group="read")

    def on_compare_screen_paired(self, event: Paired) -> None:
        """List the examples."""
        if event.pairing is None:
            self.query_one("#head", Static).update(event.words)
            return
        self._pairing = event.pairing
        rows = self.query_one(PairList)
        rows.pairs = event.pairing.pairs
        self.query_one("#head", Static).update(lines(_head(*self._both, event.pairing)))
        self._list()

    def on_row_list_highlighted(self, event: RowList.Highlighted) -> None:
        """Show both conversations of the example."""
        self._which = 0
        self._show(event.number)

    def on_row_list_selected(self) -> None:
        """Go on to reading."""
        self.query_one("#conversation-a").focus()

    def action_move(self, by: int) -> None:
        """Go to the next or the previous example."""
        self.query_one(PairList).move(by)

    def action_only_flipped(self) -> None:
        """List only the examples that flipped, or all again."""
        self._only_flipped = not self._only_flipped
        self._list()

    def action_rollout(self, by: int) -> None:
        """Show other rollouts of the example."""
        self._which += by
        current = self.query_one(PairList).current
        if current is not None:
            self._show(current)

    def action_fold(self, folded: bool) -> None:
        """Fold or open all sections of both."""
        for conversation in self.query(Conversation):
            conversation.fold_all(folded)

    def action_copy(self) -> None:
        """Choose what to copy of the conversation that has the focus, else of the first."""
        focused = self.focused if isinstance(self.focused, Conversation) else self.query(Conversation).first()
        if isinstance(focused, Conversation):
            self.app.push_screen(CopyScreen(focused.sections, "{}"))

    def _read(self) -> None:
        worker = get_current_worker()
        for name, index in zip("AB", self._indexes, strict=True):
            while not worker.is_cancelled and index.advance(_LINES_AT_ONCE):
                self.post_message(self.Paired(None, f"reading {name}: {index.share_done:.0%}"))
        if not worker.is_cancelled:
            self.post_message(self.Paired(pair_up(*(index.scores() for index in self._indexes)), ""))

    def _list(self) -> None:
        pairs = self._pairing.pairs if self._pairing else []
        numbers = [number for number, pair in enumerate(pairs) if pair.flipped or not self._only_flipped]
        self.query_one(PairList).show(numbers, keep_place=False, renewed=True)

    def _show(self, number: int) -> None:
        assert self._pairing is not None, "a row is highlighted after the rows are listed"
        pair = self._pairing.pairs[number]
        sides = zip("ab", self._both, self._indexes, (pair.numbers_a, pair.numbers_b), strict=True)
        for side, evaluation, index, numbers in sides:
            which = self._which % len(numbers) if numbers else 0
            row = index.read(numbers[which]) if numbers else {}
            of = f"  {which + 1} of {len(numbers)}" if len(numbers) > 1 else ""
            reward = row.get("reward") if not row.get("error") else None
            shown = f"{reward:.3f}" if isinstance(reward, int | float) else "failed" if numbers else "not run"
            name = f"{side.upper()} · {end_of(evaluation.model, 24)}"
            title: Line = (
                (name, BOLD), ("  ", ""),
                (shown, reward_style(reward if isinstance(reward, int | float) else None)), (of, DIM),
            )  # fmt: skip
            self.query_one(f"#title-{side}", Static).update(lines([title]))
            self.query_one(f"#conversation-{side}", Conversation).show(sections_of(row) if numbers else ())


def _head(a: Evaluation, b: Evaluation, pairing: Pairing) -> list[Line]:
    named: list[Line] = [
        ((f"{name} ", BOLD), (f"{one.environment} · {end_of(one.model, 30)} · {one.path.name}  ", DIM), one.mean_text)
        for name, one in (("A", a), ("B", b))
    ]
    difference = pairing.difference
    if difference is None:
        return [*named, (("they have no example in common", BAD),)]
    colour = GOOD if difference.mean > 0 else BAD if difference.mean < 0 else DIM
    spread = "" if difference.low is None else f" [{difference.low:+.3f}, {difference.high:+.3f}]"
    chance = "" if difference.p is None else f" p {difference.p:.2g}"
    words: Line = (
        ("B - A ", BOLD), (f"{difference.mean:+.3f}{spread}{chance}", colour),
        f"   {difference.n:,} examples, ", (f"{pairing.now_right} now right", GOOD), ", ",
        (f"{pairing.now_wrong} now wrong", BAD),
    )  # fmt: skip
    return [*named, words]
