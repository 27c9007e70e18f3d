"""A rollout to read: sections that fold, long texts wrapped once, only the lines in sight drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import RenderableType
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from prime_cli.viewer.reading.sections import Section
from prime_cli.viewer.widgets.styled import foreground_of

_KINDS = ("system", "user", "assistant", "tool", "reasoning", "error", "score", "facts")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class _Line:
    """A line as it is drawn. `section`: which one it belongs to; `is_title`: whether a click folds it."""

    segments: tuple[Segment, ...]
    plain: str
    section: int
    is_title: bool = False


class Conversation(ScrollView, can_focus=True):
    """Sections under each other; Enter folds the current one, e and x all of them."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"conversation--{kind}" for kind in _KINDS} | {
        "conversation--current", "conversation--dim", "conversation--found",
    }  # fmt: skip
    DEFAULT_CSS = """
    Conversation { background: $background; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
                   padding: 0 1; }
    Conversation .conversation--system { color: $text-secondary; text-style: bold; }
    Conversation .conversation--user { color: $text-primary; text-style: bold; }
    Conversation .conversation--assistant { color: $text-success; text-style: bold; }
    Conversation .conversation--tool { color: $text-warning; text-style: bold; }
    Conversation .conversation--reasoning { color: $foreground-muted; text-style: italic; }
    Conversation .conversation--error { color: $text-error; text-style: bold; }
    Conversation .conversation--score { color: $text-accent; text-style: bold; }
    Conversation .conversation--facts { color: $foreground-muted; text-style: bold; }
    Conversation .conversation--current { background: $panel; }
    Conversation:focus .conversation--current { background: $primary 40%; }
    Conversation .conversation--dim { color: $foreground-muted; }
    Conversation .conversation--found { background: $warning; color: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "fold", "Fold", show=False),
        Binding("right,j", "section(1)", "Next section", show=False),
        Binding("left,k", "section(-1)", "Section before", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self._sections: Sequence[Section] = ()
        self._folded: set[int] = set()
        self._lines: list[_Line] = []
        self._width = 0
        self._current = 0
        self._words: tuple[str, ...] = ()
        self._as_markdown = False
        self._fold_all: bool | None = None

    @property
    def sections(self) -> Sequence[Section]:
        """What is shown."""
        return self._sections

    @property
    def plain(self) -> str:
        """What is drawn, as text."""
        return "\n".join(line.plain for line in self._lines)

    def show(self, sections: Sequence[Section], *, words: Sequence[str] = ()) -> None:
        """Show sections from the top; `words` are marked, and open the sections that have them."""
        self._sections, self._words = sections, tuple(words)
        self._folded = {number for number, section in enumerate(sections) if self._starts_folded(section)}
        self._current = 0
        self._lay_out()
        self.scroll_to(y=0, animate=False)

    def fold_all(self, folded: bool) -> None:
        """Fold or open every section, also those of the rollouts that are shown after this one."""
        self._fold_all = folded
        self._folded = set(range(len(self._sections))) if folded else set()
        self._lay_out()

    def switch_markdown(self) -> bool:
        """Show texts as Markdown, or again as they are; return which."""
        self._as_markdown = not self._as_markdown
        self._lay_out()
        return self._as_markdown

    def action_fold(self) -> None:
        """Fold or open the current section."""
        self._folded ^= {self._current}
        self._lay_out()

    def action_section(self, by: int) -> None:
        """Go to another section, and bring it into sight."""
        self._current = max(0, min(len(self._sections) - 1, self._current + by))
        top = next((y for y, line in enumerate(self._lines) if line.section == self._current), 0)
        self.scroll_to_region(Region(0, top, 1, max(1, self.size.height - 2)), animate=False, top=True)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Fold or open the section whose title was clicked."""
        y = self.scroll_offset.y + event.y
        if y < len(self._lines) and self._lines[y].is_title:
            self._current = self._lines[y].section
            self.action_fold()

    def on_resize(self) -> None:
        """Wrap anew at another width."""
        if self.scrollable_content_region.width != self._width:
            self._lay_out()

    def notify_style_update(self) -> None:
        """Take the colours of another theme."""
        super().notify_style_update()
        if self._sections and self.is_attached:
            self._lay_out()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text that was marked with the mouse."""
        return selection.extract(self.plain), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw what is marked."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return line `y` of what is in sight."""
        width, base = self.scrollable_content_region.width, self.rich_style
        row = self.scroll_offset.y + y
        if row >= len(self._lines):
            return Strip.blank(width, base)
        line = self._lines[row]
        if line.is_title and line.section == self._current:
            base += self.get_component_rich_style("conversation--current")
        strip = Strip(line.segments).apply_style(base).adjust_cell_length(width, base)
        selection = self.text_selection
        span = selection.get_span(row) if selection is not None else None
        if span is not None:
            start, end = span
            end = width if end == -1 else end
            marked = strip.crop(start, end).apply_style(self.screen.get_component_rich_style("screen--selection"))
            strip = Strip.join([strip.crop(0, start), marked, strip.crop(end, width)])
        return strip.apply_offsets(0, row)

    def _starts_folded(self, section: Section) -> bool:
        if self._words and any(word.lower() in section.body.lower() for word in self._words):
            return False
        return section.folded if self._fold_all is None else self._fold_all

    def _lay_out(self) -> None:
        self._width = self.scrollable_content_region.width
        self._lines = []
        if self._width <= 0:
            return
        for number, section in enumerate(self._sections):
            self._lay_out_section(number, section)
        self.virtual_size = Size(self._width, len(self._lines))
        self.refresh()

    def _lay_out_section(self, number: int, section: Section) -> None:
        folded = number in self._folded or not section.body
        mark = "▸" if number in self._folded and section.body else "▾" if section.body else "·"
        title = Text(f"{mark} {' '.join(section.title.split())}", no_wrap=True)
        title.stylize(foreground_of(self, f"conversation--{section.kind}"))
        title.truncate(self._width, overflow="ellipsis")
        self._lines.append(_Line(tuple(title.render(self.app.console)), title.plain, number, is_title=True))
        if not folded:
            body = Text(_printable(section.shown_body))
            if section.kind in ("reasoning", "facts"):
                body.stylize(foreground_of(self, "conversation--dim"))
            for segments in self._body_lines(section, body):
                plain = "".join(segment.text for segment in segments).rstrip()
                self._lines.append(_Line((Segment("  "), *segments), f"  {plain}", number))
            self._lines.append(_Line((), "", number))

    def _body_lines(self, section: Section, text: Text) -> list[list[Segment]]:
        console = self.app.console
        body: RenderableType = text
        if self._as_markdown and section.kind in ("system", "user", "assistant", "reasoning"):
            body = Markdown(text.plain)
        elif self._words:
            found = self.get_component_rich_style("conversation--found")
            text.highlight_words(self._words, style=found, case_sensitive=False)
        options = console.options.update(width=max(1, self._width - 2), height=None)
        return console.render_lines(body, options, pad=False)


def _printable(text: str) -> str:
    return _CONTROL.sub("�", text.replace("\r\n", "\n").expandtabs(4))
