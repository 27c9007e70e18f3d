"""`prime keys`: API keys for other machines and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Make, list and revoke API keys.")


@app.command("list")
@app.command("ls", hidden=True)
def list_keys(
    every: Annotated[bool, typer.Option("--all", help="With those that are revoked or expired.")] = False,
) -> None:
    """List your API keys: what they allow, and when they were last used.

    JSON output (--output json): {keys: [{id, name, prefix, scopes, created_at, expires_at, last_used_at, revoked_at}]}
    """
    from prime_cli.core.output import mode, print_json, print_table
    from prime_cli.hub.client import connect

    with connect() as client:
        rows: list[dict[str, Any]] = [row for row in client.get("user/keys")["data"] if every or row["in_use"]]
    if mode().json:
        print_json({"keys": rows})
        return
    print_table(
        ["key", "name", "may", "last used", "ends", "id"],
        [
            (f"{row['prefix']}…", row["name"], may(row["scopes"]), _day(row["last_used_at"], "never"), ends_on(row),
             row["id"])
            for row in rows
        ],
    )  # fmt: skip


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for, to know it by later.")],
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
) -> None:  # fmt: skip
    """Make an API key; it is shown only now. Set it as PRIME_API_KEY where it is to be used.

    A key for CI that only publishes: prime keys create ci --scope environments:write --days 90

    JSON output (--output json): {id, name, prefix, scopes, expires_at, api_key or key_file}
    """
    from prime_cli.core.files import write_text_atomically
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect

    body = {"name": name, "scopes": read_scopes(scope), "expires_in_days": days}
    with connect() as client:
        made = client.post("user/keys", body)["data"]
    facts = {key: made[key] for key in ("id", "name", "prefix", "scopes", "expires_at")}
    if key_file is None:
        print_result({**facts, "api_key": made["api_key"]}, made["api_key"])
        return
    write_text_atomically(key_file, made["api_key"] + "\n", mode=0o600)
    print_result({**facts, "key_file": str(key_file)}, f"The API key {made['prefix']}… lies in {key_file}.")


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, its first characters, or its name.")],
) -> None:
    """Revoke an API key, at once and for good.

    JSON output (--output json): {id, name, prefix, revoked_at}
    """
    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect

    wanted = key.rstrip("…")
    with connect() as client:
        rows = [row for row in client.get("user/keys")["data"] if row["in_use"]]
        fitting = [row for row in rows if wanted in (row["id"], row["name"], row["prefix"])]
        if len(fitting) != 1:
            problem = f"{len(fitting)} keys are called {key!r}" if fitting else f"no key in use is called {key!r}"
            raise BadInput(problem, hint="`prime keys list` shows their ids")
        gone = client.delete(f"user/keys/{fitting[0]['id']}")["data"]
    facts = {name: gone[name] for name in ("id", "name", "prefix", "revoked_at")}
    print_result(facts, f"Revoked {gone['prefix']}… ({gone['name']}).")


def read_scopes(given: list[str] | None) -> dict[str, str] | None:
    """Return the scopes that were given as AREA:ACCESS; None, which is everything, for none.

    Raises:
        BadInput: one of them is no scope.
    """
    from prime_cli.core.errors import BadInput

    if not given:
        return None
    scopes: dict[str, str] = {}
    for text in given:
        area, _, access = text.partition(":")
        if access not in ("read", "write"):
            raise BadInput(f"{text!r} is no scope", hint="write AREA:read or AREA:write, such as environments:read")
        scopes[area] = "write" if scopes.get(area) == "write" else access
    return scopes


def may(scopes: dict[str, str] | None) -> str:
    """Say in words what scopes allow."""
    if scopes is None:
        return "everything"
    return ", ".join(f"{area}:{access}" for area, access in scopes.items()) or "nothing"


def _day(moment: str | None, otherwise: str) -> str:
    return moment[:10] if moment else otherwise


def ends_on(row: dict[str, Any]) -> str:
    """Say when a key ends, or when it was revoked."""
    if row["revoked_at"]:
        return f"revoked {_day(row['revoked_at'], '')}"
    return _day(row["expires_at"], "never")
