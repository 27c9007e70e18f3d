"""Words with the colours of the theme: lines of (text, style) that become one content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.style import Style
from textual.content import Content
from textual.widget import Widget

Part = str | tuple[str, str]
Line = Sequence[Part]

DIM, BOLD, GOOD, BAD, WRONG, ACCENT = (
    "$foreground-muted", "bold", "$text-success", "$text-warning", "bold $text-error", "$text-accent",
)  # fmt: skip


def lines(parts: Iterable[Line]) -> Content:
    """Return lines as one content."""
    content = Content("")
    for number, line in enumerate(parts):
        content = Content.assemble(content, "\n" if number else "", *line)
    return content


def heading(text: str) -> Line:
    """Return the line over a group of others."""
    return ((text, f"bold {ACCENT}"),)


def pairs(rows: Iterable[tuple[str, str]], *, width: int = 0) -> list[Line]:
    """Return names and values under each other."""
    rows = list(rows)
    widest = max([width, *(len(name) for name, _ in rows)])
    return [((f"{name:<{widest}}  ", DIM), value) for name, value in rows]


def reward_style(reward: float | None) -> str:
    """Return the colour of a reward."""
    if reward is None:
        return DIM
    return GOOD if reward >= 0.5 else BAD


def end_of(text: str, width: int) -> str:
    """Return a path as far as there is room; its end tells it from others."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def foreground_of(widget: Widget, component: str) -> Style:
    """Return the colour of a part of a widget, mixed with what is behind it, without the ground."""
    style = widget.get_component_rich_style(component)
    return Style(color=style.color, bold=style.bold, italic=style.italic)
