"""How a group lists its commands."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Lists each command with its whole first sentence; a line that is too long is folded, not cut off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands that are not hidden."""
        rows = [
            (name, _first_sentence(command.help or "")) for name, command in self.commands.items() if not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".") + "."
