"""`prime hub token`: API keys made on the server's machine, for who has lost theirs and for machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.commands.hub_options import DatabaseUrl, DataDir, data_dir_of, import_server
from prime_cli.commands.keys import ends_on, may, read_scopes
from prime_cli.core.command_groups import new_group

app = new_group("Make, list and revoke API keys of any user, on the server's machine and without a key.")


@app.command("create")
def create(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose key it is.")],
    name: Annotated[str, typer.Option(help="What the key is for, to know it by later.")] = "made by the operator",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", "-s", metavar="AREA:ACCESS",
            help="account, environments, evaluations, secrets or sandboxes, with :read or :write. None: everything.",
        ),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, max=3650, help="End it after so many days.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the key here (0600) instead of showing it.")
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
) -> None:  # fmt: skip
    """Make an API key for a user; it is shown only now.

    JSON output (--output json): {user, id, name, prefix, scopes, expires_at, api_key or key_file}
    """
    from pydantic import ValidationError

    from prime_cli.core.errors import BadInput
    from prime_cli.core.files import write_text_atomically
    from prime_cli.core.output import print_result
    from prime_cli.hub.models import NewKey

    import_server()
    from hub_server.accounts.operator import create_token

    try:
        wanted = NewKey.model_validate({"name": name, "scopes": read_scopes(scope), "expires_in_days": days})
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"{problem['loc'][-1]}: {problem['msg']}") from None
    row, key = create_token(data_dir_of(data_dir), database_url or None, user, wanted)
    facts = {field: row[field] for field in ("user", "id", "name", "prefix", "scopes", "expires_at")}
    if key_file is None:
        print_result({**facts, "api_key": key}, key)
        return
    write_text_atomically(key_file, key + "\n", mode=0o600)
    print_result({**facts, "key_file": str(key_file)}, f"The API key {row['prefix']}… of {user} lies in {key_file}.")


@app.command("list")
@app.command("ls", hidden=True)
def list_tokens(
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="Whose keys; everybody's when left out.")] = None,
    every: Annotated[bool, typer.Option("--all", help="With those that are revoked or expired.")] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
) -> None:
    """List API keys: whose they are, what they allow, when they were last used.

    JSON output (--output json): {keys: [{user, id, name, prefix, scopes, created_at, expires_at, last_used_at,
    revoked_at, in_use}]}
    """
    from prime_cli.core.output import mode, print_json, print_table

    import_server()
    from hub_server.accounts.operator import list_tokens as tokens_of

    rows = tokens_of(data_dir_of(data_dir), database_url or None, user, every=every)
    if mode().json:
        print_json({"keys": rows})
        return
    shown = [
        (row["user"], f"{row['prefix']}…", row["name"], may(row["scopes"]), (row["last_used_at"] or "never")[:10],
         ends_on(row), row["id"])
        for row in rows
    ]  # fmt: skip
    print_table(["user", "key", "name", "may", "last used", "ends", "id"], shown)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, or its first characters as `list` shows them.")],
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
) -> None:
    """Revoke an API key, at once and for good.

    JSON output (--output json): {user, id, name, prefix, revoked_at}
    """
    from prime_cli.core.output import print_result

    import_server()
    from hub_server.accounts.operator import revoke_token

    row = revoke_token(data_dir_of(data_dir), database_url or None, key)
    facts = {field: row[field] for field in ("user", "id", "name", "prefix", "revoked_at")}
    print_result(facts, f"Revoked {row['prefix']}… of {row['user']} ({row['name']}).")
