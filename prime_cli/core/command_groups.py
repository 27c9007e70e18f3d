"""How a group lists its commands."""

from __future__ import annotations

import inspect
from typing import Any

import typer
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


def new_group(summary: str, *, cls: type[CommandGroup] = CommandGroup) -> typer.Typer:
    """Return an empty group; its help is `summary`, and without a command it shows it."""
    group = typer.Typer(
        cls=cls,
        help=summary,
        rich_markup_mode=None,  # rich costs more to import than all of a group's help
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
    )
    # With a callback a group of one command stays a group.
    group.callback()(_nothing)
    return group


def _nothing() -> None:
    return None


def _first_sentence(text: str) -> str:
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".") + "."
