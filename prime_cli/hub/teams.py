"""Teams as a client sees them, and working as one of them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from prime_cli.core.context import save_settings
from prime_cli.core.errors import BadInput
from prime_cli.hub.client import HubClient
from prime_cli.hub.models import Role

PERSONAL = "personal"


@dataclass(frozen=True)
class Team:
    """A team that the user is in, and what they are there."""

    id: str
    slug: str
    name: str
    role: str


def list_teams(client: HubClient, *, limit: int = 1000, offset: int = 0) -> tuple[list[Team], int]:
    """Return the teams that the user is in, by slug, and how many there are in all."""
    answer = client.get("user/teams", limit=limit, offset=offset)
    teams = [_team(row) for row in answer["data"]]
    return teams, int(answer.get("total_count") or len(teams))


def find_team(client: HubClient, wanted: str) -> Team:
    """Return the team of this slug or id.

    Raises:
        BadInput: the user is in no such team; names the nearest.
    """
    teams, _ = list_teams(client)
    found = next((team for team in teams if wanted.lower() in (team.slug, team.id)), None)
    if found is None:
        near = difflib.get_close_matches(wanted, [team.slug for team in teams], n=1)
        yours = ", ".join(team.slug for team in teams) or "none"
        hint = f"did you mean {near[0]!r}?" if near else f"your teams: {yours}"
        raise BadInput(f"you are in no team {wanted!r}", hint=hint)
    return found


def work_as(client: HubClient, target: str) -> Team | None:
    """Work as a team from now on, named by slug or id, or as oneself with `personal`; return the team.

    Raises:
        BadInput: the user is in no such team.
    """
    team = None if target.lower() == PERSONAL else find_team(client, target)
    save_settings(
        team_id=team.id if team else None, team_name=team.name if team else None, team_role=team.role if team else None
    )
    return team


def create_team(client: HubClient, slug: str, name: str) -> Team:
    """Make a team with the user as its owner.

    Raises:
        HubError: the slug is taken or cannot be one.
    """
    return _team(client.post("teams", {"slug": slug, "name": name})["data"])


def list_members(client: HubClient, team: str, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
    """Return who is in a team, named by slug or id.

    Raises:
        HubError: the user is not in it.
    """
    members: list[dict[str, Any]] = client.get(f"teams/{quote(team, safe='')}/members", limit=limit, offset=offset)[
        "data"
    ]
    return members


def set_role(client: HubClient, team: str, user: str, role: Role) -> dict[str, Any]:
    """Take a user into a team, or change their role, and return the member.

    Raises:
        HubError: the caller does not own the team, there is no such user, or no owner would be left.
    """
    member: dict[str, Any] = client.put(_member_path(team, user), {"role": role})["data"]
    return member


def remove_member(client: HubClient, team: str, user: str) -> None:
    """Take a user out of a team.

    Raises:
        HubError: the caller may not, there is no such member, or no owner would be left.
    """
    client.delete(_member_path(team, user))


def _member_path(team: str, user: str) -> str:
    return f"teams/{quote(team, safe='')}/members/{quote(user, safe='')}"


def _team(row: dict[str, Any]) -> Team:
    return Team(str(row["teamId"]), str(row["slug"]), str(row["name"]), str(row["role"]))
