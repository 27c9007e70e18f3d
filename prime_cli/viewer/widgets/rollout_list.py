"""The list of rollouts: number, example, reward, tokens, and how the last reply begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual.message import Message

from prime_cli.viewer.reading.rollout_facts import RolloutFacts
from prime_cli.viewer.reading.rollout_query import Order
from prime_cli.viewer.widgets.row_list import RowList

Lookup = Callable[[Sequence[int]], list[RolloutFacts]]

_READ_AT_ONCE = 64
_KEPT_ROWS = 4096
_TAGS_FROM_COLUMNS = 90
_COLUMNS: tuple[tuple[str, int, Order], ...] = (
    ("#", 6, "number"), ("example", 9, "example"), ("reward", 7, "reward"), ("tokens", 7, "-tokens"),
)  # fmt: skip


class RolloutList(RowList):
    """Rollouts; the reward in colour, of failed ones the error in red.

    Args:
        lookup: returns the facts of rollouts by their numbers.
    """

    class OrderAsked(Message):
        """The head of a column was clicked."""

        def __init__(self, order: Order) -> None:
            super().__init__()
            self.order = order

    def __init__(self, lookup: Lookup, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self._lookup = lookup
        self._rows: dict[int, RolloutFacts] = {}

    def forget(self) -> None:
        """Ask anew for the facts of all rows."""
        self._rows.clear()

    def head_clicked(self, x: int) -> None:
        """Ask for the order of the column that was clicked."""
        place = 0
        for _, width, order in _COLUMNS:
            place += width + 1
            if x < place:
                self.post_message(self.OrderAsked(order))
                return

    def header(self) -> str:
        """Return the heads of the columns."""
        return " ".join(f"{name:>{width}}" for name, width, _ in _COLUMNS) + "  last reply"

    def row(self, number: int, place: int) -> Text:
        """Return the row of a rollout."""
        facts = self._facts(number, place)
        if facts is None:
            return Text(f"{number:>6} …", no_wrap=True)
        reward = "error" if facts.failed else "-" if facts.reward is None else f"{facts.reward:.3f}"
        kind = "failed" if facts.failed else "good" if (facts.reward or 0.0) >= 0.5 else "bad"
        tokens = "" if facts.tokens is None else str(facts.tokens) + ("✂" if facts.truncated else "")
        text = Text(no_wrap=True)
        text.append(f"{facts.number:>6} ", style=self.style_of("dim"))
        text.append(f"{facts.example[:9]:>9} ")
        text.append(f"{reward:>7} ", style=self.style_of(kind))
        text.append(f"{tokens:>7}  ", style=self.style_of("dim"))
        if facts.tags and self.size.width >= _TAGS_FROM_COLUMNS:
            values = " ".join(tag.partition("=")[2] for tag in facts.tags.split())
            text.append(f"[{values}] ", style=self.style_of("dim"))
        text.append(facts.preview, style=self.style_of("failed") if facts.failed else "")
        return text

    def _facts(self, number: int, place: int) -> RolloutFacts | None:
        if number not in self._rows:
            if len(self._rows) > _KEPT_ROWS:
                self._rows.clear()
            start = place - place % _READ_AT_ONCE
            for facts in self._lookup(self.numbers[start : start + _READ_AT_ONCE]):
                self._rows[facts.number] = facts
        return self._rows.get(number)
