"""`prime teams`: who publishes together."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from prime_cli.core.command_groups import new_group
from prime_cli.hub.models import Role

app = new_group("Publish and evaluate together: readers look, members publish, owners manage.")

TeamName = Annotated[str, typer.Argument(metavar="TEAM", help="The team's slug or id.")]
UserSlug = Annotated[str, typer.Argument(metavar="USER", help="The user's slug.")]


@app.command("list")
@app.command("ls", hidden=True)
def list_teams(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    offset: Annotated[int, typer.Option(min=0, help="How many to pass over.")] = 0,
) -> None:
    """List the teams that you are in. `prime switch TEAM` works as one of them.

    JSON output (--output json): {teams: [{id, slug, name, role}], total}
    """
    from dataclasses import asdict

    from prime_cli.core.output import mode, note, print_json, print_table
    from prime_cli.hub import teams
    from prime_cli.hub.client import connect

    with connect() as client:
        found, total = teams.list_teams(client, limit=limit, offset=offset)
        present = client.settings.team_id
    if mode().json:
        print_json({"teams": [asdict(team) for team in found], "total": total})
        return
    if not found:
        note("You are in no team. `prime teams create SLUG` makes one.")
        return
    rows = [(team.slug, team.name, team.role, team.id, "now" if team.id == present else "") for team in found]
    print_table(["team", "name", "role", "id", ""], rows)


@app.command("create")
def create(
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="3 to 30 of a-z, 0-9 and dashes.")],
    name: Annotated[str, typer.Option(help="The name to show.")] = "",
) -> None:
    """Make a team; you are its owner.

    JSON output (--output json): {id, slug, name, role}
    """
    from dataclasses import asdict

    from prime_cli.core.output import print_result
    from prime_cli.hub import teams
    from prime_cli.hub.client import connect

    with connect() as client:
        team = teams.create_team(client, slug, name)
    print_result(asdict(team), f"Made the team {team.slug}. Add people: prime teams add {team.slug} USER")


@app.command("members")
def members(
    team: Annotated[str, typer.Argument(metavar="[TEAM]", help="Slug or id; the team you work as when left out.")] = "",
    team_id: Annotated[str, typer.Option("--team-id", metavar="ID", help="The same as TEAM.")] = "",
) -> None:
    """List who is in a team.

    JSON output (--output json): {members: [{slug, name, email, role, joined_at}]}
    """
    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import mode, print_json, print_table
    from prime_cli.hub import teams
    from prime_cli.hub.client import connect

    with connect() as client:
        wanted = team or team_id or client.settings.team_id
        if not wanted:
            raise BadInput("which team?", hint="write `prime teams members TEAM`; `prime teams list` shows yours")
        shown = [_shown(row) for row in teams.list_members(client, wanted)]
    if mode().json:
        print_json({"members": shown})
        return
    print_table(["user", "name", "role", "since"], [
        (row["slug"], row["name"], row["role"], row["joined_at"][:10]) for row in shown
    ])  # fmt: skip


@app.command("add")
def add(
    team: TeamName, user: UserSlug, role: Annotated[Role, typer.Option(help="What they may do there.")] = Role.MEMBER
) -> None:
    """Take a user into a team, or change their role there; the team's owners do.

    JSON output (--output json): {slug, name, email, role, joined_at}
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub import teams
    from prime_cli.hub.client import connect

    with connect() as client:
        member = _shown(teams.set_role(client, team, user, role))
    print_result(member, f"{member['slug']} is {_with_article(member['role'])} of {team}.")


@app.command("remove")
def remove(team: TeamName, user: UserSlug) -> None:
    """Take a user out of a team; you can always take yourself out.

    JSON output (--output json): {team, removed}
    """
    from prime_cli.core.output import print_result
    from prime_cli.hub import teams
    from prime_cli.hub.client import connect

    with connect() as client:
        teams.remove_member(client, team, user)
    print_result({"team": team, "removed": user}, f"{user} is no longer in {team}.")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    names = {"slug": "userSlug", "name": "userName", "email": "userEmail", "role": "role", "joined_at": "joinedAt"}
    return {name: row.get(key) for name, key in names.items()}


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"
