"""`prime env fork`, `star` and `unstar`: take part in somebody else's environment."""

from __future__ import annotations

from typing import Annotated

import typer

HubName = Annotated[str, typer.Argument(metavar="OWNER/NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("fork")(fork)
    app.command("star")(star)
    app.command("unstar")(unstar)


def fork(
    name: HubName,
    team: Annotated[str | None, typer.Option("--team", "-t", help="Fork to this team instead of yourself.")] = None,
) -> None:
    """Copy the latest version of an environment on the hub, as the first one of an environment of your own.

    JSON output (--output json): {success, message, environment_id, version_id, name, owner, slug}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_changes import fork as copy
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect() as client:
        told = copy(client, parse_environment_id(name), team)
    out.print_result(told, str(told["message"]))
    out.note(f"next: [cyan]prime env pull {told['slug']}[/cyan], edit it, then `prime env push`")


def star(name: HubName) -> None:
    """Star an environment: `prime env list --starred` shows yours.

    JSON output (--output json): {environment, starred, stars}
    """
    _star(name, starred=True)


def unstar(name: HubName) -> None:
    """Take a star back.

    JSON output (--output json): {environment, starred, stars}
    """
    _star(name, starred=False)


def _star(name: str, *, starred: bool) -> None:
    from prime_cli.core import output as out
    from prime_cli.environments import hub_changes
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    with connect() as client:
        stars = hub_changes.star(client, identity, starred=starred)
    facts = {"environment": str(identity), "starred": starred, "stars": stars}
    out.print_result(facts, f"{identity} has {stars} star{'' if stars == 1 else 's'}")
