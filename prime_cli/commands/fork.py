"""`prime fork`: begin an environment of your own from somebody else's."""

from __future__ import annotations

import typer

from prime_cli.commands.env_fork import fork

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Begin an environment of your own from somebody else's.",
)
app.command()(fork)
