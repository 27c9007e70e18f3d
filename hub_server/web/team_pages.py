"""Teams under the settings: making one, its members and their roles, and leaving it."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from hub_server.access import Caller, PathTeam
from hub_server.accounts import audit, teams
from hub_server.accounts.tables import Team, User
from hub_server.errors import Malformed, Refusal
from hub_server.services import HubServices
from hub_server.web import forms
from hub_server.web.rendering import page
from hub_server.web.session_routes import FormToken
from prime_cli.hub.models import SLUG_PATTERN, Role

router = APIRouter(include_in_schema=False)

TEAMS_PATH = "/dashboard/settings/teams"
_EVENTS_SHOWN = 20
MemberSlug = Annotated[str, Form(max_length=100)]


@router.get(TEAMS_PATH)
def teams_page(user: Caller, request: Request, services: HubServices) -> Response:
    """The teams of who is signed in, and a form for another."""
    with services.database.read() as session:
        return _teams(session, request, user)


@router.post(TEAMS_PATH)
def create_team_page(
    user: Caller,
    request: Request,
    services: HubServices,
    form_token: FormToken,
    slug: Annotated[str, Form(max_length=100)] = "",
    name: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Make a team, and go to its page."""
    forms.check_form(services, request, form_token)
    try:
        if not re.fullmatch(SLUG_PATTERN, slug.strip()):
            raise Malformed("A slug has 3 to 30 small letters, digits and hyphens.")
        with services.database.write() as session:
            team = teams.create_team(session, user, slug=slug.strip(), name=name.strip())
    except Refusal as refusal:
        with services.database.read() as session:
            return _teams(session, request, user, problem=refusal)
    return RedirectResponse(f"{TEAMS_PATH}/{team.slug}", status_code=303)


@router.get(TEAMS_PATH + "/{team_id}")
def team_page(team: PathTeam, user: Caller, request: Request, services: HubServices) -> Response:
    """The members of a team, and, for its owners, forms to change them."""
    with services.database.read() as session:
        return _team(session, request, user, team)


@router.post(TEAMS_PATH + "/{team_id}/members")
def set_role_page(
    team: PathTeam,
    user: Caller,
    request: Request,
    services: HubServices,
    form_token: FormToken,
    role: Annotated[Role, Form()],
    slug: MemberSlug = "",
) -> Response:
    """Take somebody into a team, or give them another role."""
    forms.check_form(services, request, form_token)
    try:
        with services.database.write() as session:
            teams.set_role(session, user, team, slug.strip().lower(), role)
    except Refusal as refusal:
        with services.database.read() as session:
            return _team(session, request, user, team, problem=refusal)
    return RedirectResponse(f"{TEAMS_PATH}/{team.slug}", status_code=303)


@router.post(TEAMS_PATH + "/{team_id}/members/remove")
def remove_member_page(
    team: PathTeam, user: Caller, request: Request, services: HubServices, form_token: FormToken, slug: MemberSlug = ""
) -> Response:
    """Take somebody out of a team; everybody may leave by themselves."""
    forms.check_form(services, request, form_token)
    member = slug.strip().lower()
    try:
        with services.database.write() as session:
            teams.remove_member(session, user, team, member)
    except Refusal as refusal:
        with services.database.read() as session:
            return _team(session, request, user, team, problem=refusal)
    has_left = member == user.slug
    return RedirectResponse(TEAMS_PATH if has_left else f"{TEAMS_PATH}/{team.slug}", status_code=303)


def _teams(session: Session, request: Request, user: User, *, problem: Refusal | None = None) -> Response:
    return page(
        request,
        "teams.html",
        problem.status if problem else 200,
        memberships=teams.teams_of(session, user),
        problem=problem.detail if problem else "",
    )


def _team(session: Session, request: Request, user: User, team: Team, *, problem: Refusal | None = None) -> Response:
    events, _ = audit.events_of(session, team.id, limit=_EVENTS_SHOWN)
    owns = teams.has_role(session, user, team.id, Role.OWNER)
    return page(
        request,
        "team.html",
        problem.status if problem else 200,
        team=team,
        members=teams.members_of(session, team),
        roles=list(Role),
        owns=owns,
        events=events if owns else [],
        problem=problem.detail if problem else "",
    )
