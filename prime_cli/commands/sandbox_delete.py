"""`prime sandbox delete`, and what else ends or forgets: reset-cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def register(app: typer.Typer) -> None:
    """Add the commands to `prime sandbox`."""
    app.command("delete")(delete)
    app.command("reset-cache")(reset_cache)


def delete(
    sandbox_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Which ones; commas work too.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All that have not ended.")] = False,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="All with these labels; repeat it.")] = None,
    only_mine: Annotated[
        bool, typer.Option("--only-mine/--all-users", "-m/-A", help="With --all or --label: of a team, yours or all.")
    ] = True,
    user: Annotated[str | None, typer.Option("--user", "-u", metavar="ID", help="Those that this user made.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End sandboxes; everything in them is gone. What they were stays readable by `prime sandbox get`.

    JSON output (--output json): {succeeded, failed: [{sandbox_id, error}]}. Exit code 1 when some could not be ended.
    """
    from prime_cli.commands.secret_shelves import confirm
    from prime_cli.core import output as out
    from prime_cli.core.errors import BadInput
    from prime_cli.hub.client import connect
    from prime_cli.sandboxes import platform

    given = [part for text in sandbox_ids or [] for part in text.split(",") if part]
    if bool(given) + everything + bool(label) != 1:
        raise BadInput("which sandboxes?", hint="give ids, or --label LABEL, or --all")
    with connect() as client:
        wanted = given or list(platform.every_id(client, **_filters(client, label, only_mine, user)))
        if not wanted:
            out.print_result({"succeeded": [], "failed": []}, "There are none.")
            return
        if not given:
            confirm(f"End {len(wanted)} sandboxes?" if len(wanted) > 1 else f"End sandbox {wanted[0]}?", yes)
        done = platform.delete(client, wanted)
    for failure in done["failed"]:
        out.warn(f"{failure.get('sandbox_id')}: {failure.get('error')}")
    ended = done["succeeded"]
    out.print_result(done, f"Ended {', '.join(ended)}" if len(ended) in (1, 2, 3) else f"Ended {len(ended)} sandboxes")
    if done["failed"]:
        raise typer.Exit(1)


def reset_cache(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Forget the gateway tokens that the Python SDK keeps on this machine; it asks the hub for new ones.

    JSON output (--output json): {removed: [path]}
    """
    from pathlib import Path

    from prime_cli.commands.secret_shelves import confirm
    from prime_cli.core.context import prime_home
    from prime_cli.core.output import print_result

    name = "sandbox_auth_cache.json"
    there = [path for path in dict.fromkeys((prime_home() / name, Path.home() / ".prime" / name)) if path.exists()]
    if there:
        confirm("Forget the gateway tokens of all sandboxes?", yes)
    for path in there:
        path.unlink(missing_ok=True)
    print_result({"removed": [str(path) for path in there]}, "Forgotten." if there else "There were none.")


def _filters(client: HubClient, label: list[str] | None, only_mine: bool, user: str | None) -> dict[str, Any]:
    """Return what tells the sandboxes that are meant from others."""
    team_id = client.settings.team_id
    if user is None and team_id and only_mine:
        user = client.settings.user_id or str(client.get("user/whoami")["data"]["id"])
    return {"labels": label, "team_id": team_id, "user_id": user}
