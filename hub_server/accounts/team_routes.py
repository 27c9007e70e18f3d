"""Routes of teams."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hub_server.access import Caller, PathTeam
from hub_server.accounts import audit, teams
from hub_server.accounts.tables import Membership, Team
from hub_server.paging import Limit, Offset
from hub_server.services import HubServices
from prime_cli.hub.models import NewTeam, RoleChange, TeamChange

router = APIRouter(prefix="/api/v1", tags=["accounts"])


@router.get("/user/teams")
def list_teams(user: Caller, services: HubServices, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """List the teams that the caller is in, by slug."""
    with services.database.read() as session:
        rows = [teams.team_row(membership) for membership in teams.teams_of(session, user)]
    return {"data": rows[offset : offset + limit], "total_count": len(rows)}


@router.post("/teams")
def create_team(body: NewTeam, user: Caller, services: HubServices) -> dict[str, Any]:
    """Make a team; the caller is its owner."""
    with services.database.write() as session:
        team = teams.create_team(session, user, slug=body.slug, name=body.name)
        return {"data": teams.team_row(session.get_one(Membership, (team.id, user.id)))}


@router.get("/teams/{team_id}")
def team_details(team: PathTeam, user: Caller, services: HubServices) -> dict[str, Any]:
    """Say what a team is called and what the caller is in it; the path takes its id or its slug."""
    with services.database.read() as session:
        return {"data": teams.team_row(session.get_one(Membership, (team.id, user.id)))}


@router.patch("/teams/{team_id}")
def rename_team(body: TeamChange, team: PathTeam, user: Caller, services: HubServices) -> dict[str, Any]:
    """Give a team another name for people to read."""
    with services.database.write() as session:
        teams.rename_team(session, user, session.get_one(Team, team.id), name=body.name)
        return {"data": teams.team_row(session.get_one(Membership, (team.id, user.id)))}


@router.get("/teams/{team_id}/members")
def list_members(team: PathTeam, services: HubServices, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """List who is in a team, by slug."""
    with services.database.read() as session:
        rows = [teams.membership_row(membership) for membership in teams.members_of(session, team)]
    return {"data": rows[offset : offset + limit], "total_count": len(rows)}


@router.put("/teams/{team_id}/members/{user_slug}")
def set_role(user_slug: str, body: RoleChange, team: PathTeam, user: Caller, services: HubServices) -> dict[str, Any]:
    """Take a user into a team, or change their role."""
    with services.database.write() as session:
        membership = teams.set_role(session, user, session.get_one(Team, team.id), user_slug, body.role)
        session.refresh(membership)
        return {"data": teams.membership_row(membership)}


@router.delete("/teams/{team_id}/members/{user_slug}")
def remove_member(user_slug: str, team: PathTeam, user: Caller, services: HubServices) -> dict[str, Any]:
    """Take a user out of a team, or leave it."""
    with services.database.write() as session:
        teams.remove_member(session, user, session.get_one(Team, team.id), user_slug)
    return {"success": True, "message": f"{user_slug} is no longer in {team.slug}"}


@router.get("/teams/{team_id}/audit")
def list_team_audit_events(
    team: PathTeam, services: HubServices, limit: Limit = 100, offset: Offset = 0
) -> dict[str, Any]:
    """List what was done with a team and its things, newest first."""
    with services.database.read() as session:
        events, total = audit.events_of(session, team.id, limit=limit, offset=offset)
        return {"data": [audit.event_row(event) for event in events], "total_count": total}
