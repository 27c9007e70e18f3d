"""Copy mode: choose what of a rollout goes to the clipboard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from prime_cli.viewer.reading.sections import Section, whole_text
from prime_cli.viewer.widgets.styled import BOLD, DIM, lines

_EXCERPT = 40


class CopyScreen(ModalScreen[None]):
    """Offers the whole rollout as text or as JSON, and each of its sections."""

    CSS = """
    CopyScreen { align: center middle; }
    CopyScreen > Vertical { width: 76; max-width: 96%; height: auto; max-height: 86%; border: round $primary;
                            background: $surface; padding: 0 1; }
    CopyScreen OptionList { height: auto; max-height: 100%; border: none; }
    CopyScreen Static { height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,b,c,q", "dismiss", "Close")]

    def __init__(self, sections: Sequence[Section], raw: str) -> None:
        super().__init__()
        self._texts = [("everything, as text", whole_text(sections)), ("everything, as JSON", _pretty(raw))]
        self._texts += [(section.title, section.body or section.title) for section in sections]

    def compose(self) -> ComposeResult:
        """Lay out the choices."""
        with Vertical():
            yield Static(lines([(("Copy", BOLD), ("   Enter copies, Escape closes", DIM))]))  # fmt: skip
            yield OptionList(*(Option(_label(title, text)) for title, text in self._texts))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Copy, and go back."""
        title, text = self._texts[event.option_index]
        self.app.copy_to_clipboard(text)
        self.dismiss()
        self.app.notify(f"copied: {title} ({len(text):,} characters)", timeout=3, markup=False)


def _label(title: str, text: str) -> Content:
    words = " ".join(text[: 4 * _EXCERPT].split())[:_EXCERPT]
    return Content.assemble(title[:40], "  ", (words, DIM))


def _pretty(raw: str) -> str:
    try:
        return json.dumps(json.loads(raw), indent=2, ensure_ascii=False)
    except ValueError:
        return raw
