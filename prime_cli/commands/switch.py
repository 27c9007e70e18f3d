"""`prime switch`: work as a team, or as yourself."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, help="Work as a team, or as yourself."
)


@app.command()
def switch(
    target: Annotated[
        str, typer.Argument(metavar="[TEAM]", help="A team's slug or id, or `personal`; asks when left out.")
    ] = "",
) -> None:
    """Publish and evaluate as a team from now on, or as yourself again.

    JSON output (--output json): {team: {id, slug, name, role} or null}
    """
    from dataclasses import asdict

    from prime_cli.core.output import print_result
    from prime_cli.hub.client import connect
    from prime_cli.hub.teams import work_as

    with connect() as client:
        team = work_as(client, target or _ask(client))
    words = f"You work as the team {team.slug} ({team.role}) now." if team else "You work as yourself now."
    print_result({"team": asdict(team) if team else None}, words)


def _ask(client: object) -> str:
    import sys

    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import mode, note
    from prime_cli.hub.client import HubClient
    from prime_cli.hub.teams import PERSONAL, list_teams

    assert isinstance(client, HubClient)
    teams, _ = list_teams(client)
    names = [PERSONAL, *(team.slug for team in teams)]
    if not sys.stdin.isatty() or mode().json:
        raise BadInput("as which team?", hint=f"write `prime switch TARGET` with one of: {', '.join(names)}")
    for number, name in enumerate(names):
        note(f"  {number}  {name}")
    chosen = typer.prompt("Work as", default=PERSONAL)
    return names[int(chosen)] if chosen.isdigit() and int(chosen) < len(names) else str(chosen)
