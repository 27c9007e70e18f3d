"""`prime secret`: secrets of yours or of your team, to be linked to environments."""

from __future__ import annotations

from typing import Annotated

import typer

from prime_cli.commands.secret_shelves import DescriptionOption, FileOption, NameOption, ValueOption, YesOption
from prime_cli.core.command_groups import new_group

app = new_group("Keep secrets on the hub, for the hosted jobs of your environments.")

Wanted = Annotated[str | None, typer.Argument(metavar="SECRET", help="Its id or its name.")]


@app.command("list")
def list_secrets() -> None:
    """List your global secrets, or those of your team.

    JSON output (--output json): {secrets: [{id, name, description, isFile, createdAt, updatedAt}]}
    """
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.client import connect
    from prime_cli.hub.secrets import global_secrets

    with connect() as client:
        secret_shelves.show_list(client, global_secrets(client), "secrets", ("id", "name", "description", "createdAt"))


app.command("ls", hidden=True)(list_secrets)


@app.command()
def create(
    name: NameOption = None, value: ValueOption = None, description: DescriptionOption = None, file: FileOption = False
) -> None:
    """Add a global secret. Nobody can read its value again: only the jobs of environments that it is linked to get it.

    JSON output (--output json): {id, name, description, isFile, createdAt, updatedAt}
    """
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.client import connect
    from prime_cli.hub.secrets import global_secrets

    with connect() as client:
        secret_shelves.create(client, global_secrets(client), name, value, description, file)


@app.command()
def update(
    secret: Wanted = None, name: NameOption = None, value: ValueOption = None, description: DescriptionOption = None
) -> None:
    """Change a global secret; of one that is a file --value is the path of the new file.

    JSON output (--output json): {id, name, description, isFile, createdAt, updatedAt}
    """
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.client import connect
    from prime_cli.hub.secrets import global_secrets

    with connect() as client:
        secret_shelves.update(client, global_secrets(client), secret, name, value, description)


@app.command()
def delete(secret: Wanted = None, yes: YesOption = False) -> None:
    """Delete a global secret; environments that it was linked to lose it.

    JSON output (--output json): {id, name}
    """
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.client import connect
    from prime_cli.hub.secrets import global_secrets

    with connect() as client:
        secret_shelves.delete(client, global_secrets(client), secret, yes)


@app.command()
def get(secret: Annotated[str, typer.Argument(metavar="SECRET", help="Its id or its name.")]) -> None:
    """Show a global secret without its value, which the hub does not give back.

    JSON output (--output json): {id, name, description, isFile, createdAt, updatedAt}
    """
    from prime_cli.core import output as out
    from prime_cli.hub.client import connect
    from prime_cli.hub.secrets import find_entry, global_secrets

    with connect() as client:
        entry = find_entry(client, global_secrets(client), secret)
    lines = (f"{key:<12} {value}" for key, value in entry.items() if value not in (None, ""))
    out.print_result(entry, "\n".join(lines))
