"""Where words go: results on stdout, everything else on stderr; readable without colour, parseable on request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prime_cli.core.errors import PrimeError

if TYPE_CHECKING:
    from rich.console import Console


_PIPE_COLUMNS = 200


@dataclass
class OutputMode:
    """How this invocation speaks. `plain`: no colour, no boxes, no wrapping. `json`: stdout carries one JSON object."""

    plain: bool = False
    json: bool = False


_mode = OutputMode()


def set_mode(*, plain: bool, as_json: bool) -> None:
    """Set the mode for the rest of the process; called once, by the root command."""
    _mode.plain = plain
    _mode.json = as_json


def mode() -> OutputMode:
    """Return the mode that the root command set."""
    return _mode


def stdout_console() -> Console:
    """Return the console for results. NO_COLOR is honoured by rich; `--plain` switches colour and wrapping off."""
    from rich.console import Console

    # What goes into a pipe or a file is not folded at the width of a screen that is not there.
    folded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(
        no_color=_mode.plain or None,
        highlight=False,
        soft_wrap=_mode.plain or not folded,
        width=None if folded else _PIPE_COLUMNS,
    )


def stderr_console() -> Console:
    """Return the console for progress, notes and errors."""
    from rich.console import Console

    return Console(stderr=True, no_color=_mode.plain or None, highlight=False, soft_wrap=True)


def is_interactive() -> bool:
    """Say whether a live display makes sense: a terminal on stderr, and neither `--plain` nor `--output json`."""
    return sys.stderr.isatty() and not _mode.plain and not _mode.json and os.environ.get("TERM") != "dumb"


def can_open_viewer() -> bool:
    """Say whether an application can take the terminal: one at both ends, and neither `--plain` nor `--output json`."""
    return sys.stdin.isatty() and sys.stdout.isatty() and is_interactive()


def print_json(data: Any) -> None:
    """Write one JSON document to stdout, indented by two."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_result(data: dict[str, Any], text: str) -> None:
    """Write a result: `data` under `--output json`, else `text` as it is."""
    if _mode.json:
        print_json(data)
    else:
        stdout_console().print(text, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Write a table to stdout; in plain mode tab-separated values under a header line."""
    if _mode.plain:
        sys.stdout.write("\t".join(columns) + "\n")
        for row in rows:
            sys.stdout.write("\t".join("" if cell is None else str(cell) for cell in row) + "\n")
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # As text, not as markup: cells carry what others wrote.
        table.add_row(*(Text("" if cell is None else str(cell), overflow="fold") for cell in row))
    stdout_console().print(table)


def note(text: str) -> None:
    """Say what is going on, on stderr."""
    stderr_console().print(text)


def success(text: str) -> None:
    """Say that something was done, on stderr."""
    stderr_console().print(f"[green]✓[/green] {text}")


def warn(text: str) -> None:
    """Warn about something that was not fatal, on stderr."""
    stderr_console().print(f"[yellow]warning:[/yellow] {text}")


def print_error(error: PrimeError) -> None:
    """Write an error in one line and its hint in another, on stderr; under `--output json` as an object there."""
    if _mode.json:
        body = {"error": error.message, **({"hint": error.hint} if error.hint else {})}
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    from rich.markup import escape

    console = stderr_console()
    console.print(f"[red]error:[/red] {escape(error.message)}")
    if error.hint:
        console.print(f"[cyan]hint:[/cyan] {escape(error.hint)}")
