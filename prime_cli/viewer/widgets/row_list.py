"""A list of rows that draws only those in sight, so that a hundred thousand cost as much as ten."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from prime_cli.viewer.widgets.styled import foreground_of


class RowList(ScrollView, can_focus=True):
    """Rows under a header that stays, with a cursor. What a row is, is known by its number."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "list--header", "list--cursor", "list--dim", "list--good", "list--bad", "list--failed",
    }  # fmt: skip
    DEFAULT_CSS = """
    RowList { background: $surface; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    RowList .list--header { color: $foreground-muted; text-style: bold; }
    RowList .list--cursor { background: $panel; text-style: bold; }
    RowList:focus .list--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
    RowList .list--dim { color: $foreground-muted; }
    RowList .list--good { color: $text-success; }
    RowList .list--bad { color: $text-warning; }
    RowList .list--failed { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Read", show=False),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("home", "move_to(0)", "First", show=False),
        Binding("end", "move_to(-1)", "Last", show=False),
    ]

    cursor: reactive[int] = reactive(0)

    class Highlighted(Message):
        """The cursor stands on another row."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    class Selected(Message):
        """A row was chosen with Enter or with the mouse."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self._numbers: Sequence[int] = range(0)
        self._told: int | None = None

    @property
    def numbers(self) -> Sequence[int]:
        """What is listed, in order."""
        return self._numbers

    @property
    def current(self) -> int | None:
        """What the cursor stands on."""
        return self._numbers[self.cursor] if self.cursor < len(self._numbers) else None

    @abstractmethod
    def header(self) -> str:
        """Return the heads of the columns."""

    @abstractmethod
    def row(self, number: int, place: int) -> Text:
        """Return a row; `place` is where it stands in the list."""

    def show(self, numbers: Sequence[int], *, keep_place: bool, renewed: bool = False) -> None:
        """List these.

        Args:
            keep_place: leave the cursor in its row; else it goes to the first.
            renewed: what is known of rows does not hold any more.
        """
        if renewed:
            self.forget()
        if renewed or not keep_place:
            self._told = None
        self._numbers = numbers
        self.virtual_size = Size(self.size.width, len(numbers) + 1)
        last = max(0, len(numbers) - 1)
        self.cursor = min(self.cursor, last) if keep_place else 0
        if not keep_place:
            self.scroll_to(y=0, animate=False)
        self._tell()
        self.refresh()

    def forget(self) -> None:
        """Forget what is known of rows."""

    def move(self, by: int) -> None:
        """Move the cursor by some rows, as far as there are any."""
        self.cursor = max(0, min(len(self._numbers) - 1, self.cursor + by))

    def watch_cursor(self) -> None:
        """Keep the cursor in sight, and tell where it stands."""
        # Two lines: the header lies over the first one.
        self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False, x_axis=False)
        self._tell()
        self.refresh()

    def action_select(self) -> None:
        """Choose the row under the cursor."""
        if self.current is not None:
            self.post_message(self.Selected(self.current))

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self.move(by)

    def action_move_page(self, pages: int) -> None:
        """Move the cursor by as many rows as are in sight."""
        self.move(pages * max(1, self.size.height - 2))

    def action_move_to(self, place: int) -> None:
        """Move the cursor to the first or the last row."""
        self.move(-len(self._numbers) if place == 0 else len(self._numbers))

    def head_clicked(self, x: int) -> None:
        """The header was clicked at column `x`."""

    def on_click(self, event: events.Click) -> None:
        """Choose the row that was clicked."""
        if event.y == 0:
            self.head_clicked(event.x)
            return
        row = self.scroll_offset.y + event.y - 1
        if row < len(self._numbers):
            self.cursor = row
            self.action_select()

    def on_resize(self) -> None:
        """Follow the width."""
        self.virtual_size = Size(self.size.width, len(self._numbers) + 1)

    def render_line(self, y: int) -> Strip:
        """Return line `y` of what is in sight."""
        width, base = self.size.width, self.rich_style
        place = self.scroll_offset.y + y - 1
        if y == 0:
            text = Text(no_wrap=True).append(self.header(), style=self.style_of("header"))
        elif place < len(self._numbers):
            text = self.row(self._numbers[place], place)
        else:
            return Strip.blank(width, base)
        if y > 0 and place == self.cursor:
            # The cursor's colours win over those of the cells.
            base = self.get_component_rich_style("list--cursor")
            text = Text(text.plain, no_wrap=True)
        text.truncate(width, overflow="ellipsis")
        return Strip(text.render(self.app.console)).apply_style(base).adjust_cell_length(width, base)

    def style_of(self, name: str) -> Style:
        """Return the colours of a part of a row."""
        return foreground_of(self, f"list--{name}")

    def _tell(self) -> None:
        if self.current is not None and self.current != self._told:
            self._told = self.current
            self.post_message(self.Highlighted(self.current))
