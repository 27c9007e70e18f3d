"""What the groups `secret`, `env secret` and `env var` have in common: asking for values, showing entries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient
    from prime_cli.hub.secrets import Shelf

NameOption = Annotated[str | None, typer.Option("--name", "-n", help="A-Z, digits and underscores, a letter first.")]
ValueOption = Annotated[
    str | None, typer.Option("--value", "-v", help="The value; - reads it from stdin, without it you are asked.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", "-d", help="What it is for.")]
FileOption = Annotated[bool, typer.Option("--file", "-f", help="--value is the path of a file whose content is kept.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def show_list(client: HubClient, shelf: Shelf, key: str, columns: tuple[str, ...]) -> None:
    """Print what lies there."""
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import list_entries

    entries = list_entries(client, shelf)
    if out.mode().json:
        out.print_json({key: entries})
        return
    rows = [[_cell(entry, column) for column in columns] for entry in entries]
    out.print_table([{"createdAt": "created"}.get(column, column) for column in columns], rows)


def create(
    client: HubClient, shelf: Shelf, name: str | None, value: str | None, description: str | None, is_file: bool = False
) -> None:
    """Add an entry; asks for what was not given."""
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import add_entry, check_name

    name = check_name(name if name is not None else _asked("Name", "--name"))
    given = _value(shelf, value, is_file)
    added = add_entry(client, shelf, name, given, description=description, is_file=is_file)
    out.print_result(added, f"{shelf.noun} {name} created ({added['id']})")


def update(
    client: HubClient, shelf: Shelf, wanted: str | None, name: str | None, value: str | None, description: str | None
) -> None:
    """Change an entry; without any change named it asks for a new value."""
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import change_entry, check_name

    if name is not None:
        check_name(name)
    entry = _own_entry(client, shelf, wanted)
    if value is not None or (name is None and description is None):
        value = _value(shelf, value, is_file=bool(entry.get("isFile")))
    changed = change_entry(client, shelf, str(entry["id"]), name=name, value=value, description=description)
    out.print_result(changed, f"{shelf.noun} {changed['name']} updated")


def delete(client: HubClient, shelf: Shelf, wanted: str | None, yes: bool) -> None:
    """Delete an entry, after a question."""
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import remove_entry

    entry = _own_entry(client, shelf, wanted)
    confirm(f"Delete {shelf.noun} {entry['name']}?", yes)
    remove_entry(client, shelf, str(entry["id"]))
    out.print_result({"id": entry["id"], "name": entry["name"]}, f"{shelf.noun} {entry['name']} deleted")


def confirm(question: str, yes: bool) -> None:
    """Go on only with `yes` or when somebody agrees.

    Raises:
        BadInput: nobody is there to be asked.
    """
    from prime_cli.core.errors import BadInput

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(question, hint="say `--yes` where nobody can be asked")
    typer.confirm(question, abort=True, err=True)


def _own_entry(client: HubClient, shelf: Shelf, wanted: str | None) -> dict[str, Any]:
    """Return the entry that is meant; of an environment's secrets only its own can be changed."""
    from prime_cli.hub.secrets import find_entry

    if wanted is None:
        wanted = _asked(f"Which {shelf.noun}", "its id or name")
    return find_entry(client, shelf, wanted, source="environment" if "/secrets" in shelf.path else None)


def _value(shelf: Shelf, given: str | None, is_file: bool) -> str:
    from prime_cli.core.errors import BadInput
    from prime_cli.hub.secrets import read_file

    if is_file:
        if given is None:
            raise BadInput("which file?", hint="`--file --value PATH`")
        return read_file(Path(given))
    if given == "-":
        given = sys.stdin.read().removesuffix("\n")
    elif given is None:
        given = _asked("Value", "--value", hidden=shelf.noun == "secret")
    if not given:
        raise BadInput("the value is empty")
    return given


def _asked(prompt: str, option: str, *, hidden: bool = False) -> str:
    from prime_cli.core.errors import BadInput

    if not sys.stdin.isatty():
        raise BadInput(f"{prompt.lower()}?", hint=f"give {option} where nobody can be asked")
    answer: str = typer.prompt(prompt, hide_input=hidden, err=True)
    return answer.strip() if not hidden else answer


def _cell(entry: dict[str, Any], column: str) -> Any:
    value = entry.get(column)
    return str(value or "")[:16].replace("T", " ") if column == "createdAt" else value
