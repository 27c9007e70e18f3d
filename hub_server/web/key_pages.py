"""The settings of an account: its API keys, and what was done with it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from hub_server.access import Caller
from hub_server.accounts import audit, keys
from hub_server.accounts.tables import ApiKey, User
from hub_server.errors import Malformed, Refusal
from hub_server.services import HubServices
from hub_server.web import forms
from hub_server.web.browsing import PageNumber, Pager
from hub_server.web.rendering import page
from hub_server.web.session_routes import FormToken

router = APIRouter(include_in_schema=False)

KEYS_PATH = "/dashboard/settings/keys"
_LIFETIMES = [(0, "never"), (7, "in 7 days"), (30, "in 30 days"), (90, "in 90 days"), (365, "in a year")]
_EVENTS_ON_A_PAGE = 50
Scope = Annotated[str, Form(pattern="^(|read|write)$")]


@router.get("/dashboard/settings")
def settings_page() -> Response:
    """Settings begin with the keys."""
    return RedirectResponse(KEYS_PATH, status_code=303)


@router.get(KEYS_PATH)
def keys_page(user: Caller, request: Request, services: HubServices) -> Response:
    """The keys of who is signed in, and a form for another."""
    with services.database.read() as session:
        return _keys(session, request, user)


@router.post(KEYS_PATH)
def create_key_page(
    user: Caller,
    request: Request,
    services: HubServices,
    form_token: FormToken,
    name: Annotated[str, Form(max_length=200)] = "",
    days: Annotated[int, Form(ge=0, le=3650)] = 0,
    reach: Annotated[str, Form(pattern="^(everything|limited)$")] = "everything",
    account: Scope = "",
    environments: Scope = "",
    evaluations: Scope = "",
    secrets: Scope = "",
    sandboxes: Scope = "",
) -> Response:
    """Make a key; the page that follows shows it, once."""
    forms.check_form(services, request, form_token)
    chosen = {
        "account": account, "environments": environments, "evaluations": evaluations, "secrets": secrets,
        "sandboxes": sandboxes,
    }  # fmt: skip
    scopes = {area: access for area, access in chosen.items() if access}
    try:
        if not name.strip():
            raise Malformed("Give the key a name by which you recognise it.")
        if reach == "limited" and not scopes:
            raise Malformed("A limited key needs at least one right.")
        with services.database.write() as session:
            row, key = keys.create_key(
                session, user, name=name.strip(), scopes=scopes if reach == "limited" else None,
                expires_in_days=days or None,
            )  # fmt: skip
    except Refusal as refusal:
        with services.database.read() as session:
            return _keys(session, request, user, problem=refusal)
    with services.database.read() as session:
        return _keys(session, request, user, made=(row, key))


@router.post(KEYS_PATH + "/{key_id}/revoke")
def revoke_key_page(
    key_id: str, user: Caller, request: Request, services: HubServices, form_token: FormToken
) -> Response:
    """Revoke a key, and show the others."""
    forms.check_form(services, request, form_token)
    with services.database.write() as session:
        keys.revoke_key_by_id(session, user, key_id)
    return RedirectResponse(KEYS_PATH, status_code=303)


@router.get("/dashboard/settings/audit")
def audit_page(user: Caller, request: Request, services: HubServices, number: PageNumber = 1) -> Response:
    """What was done with the account of who is signed in."""
    with services.database.read() as session:
        skipped = (number - 1) * _EVENTS_ON_A_PAGE
        events, total = audit.events_of(session, user.id, limit=_EVENTS_ON_A_PAGE, offset=skipped)
        return page(request, "audit.html", events=events, team=None, pager=Pager(number, total, _EVENTS_ON_A_PAGE))


def _keys(
    session: Session,
    request: Request,
    user: User,
    *,
    made: tuple[ApiKey, str] | None = None,
    problem: Refusal | None = None,
) -> Response:
    rows = keys.keys_of(session, user)
    return page(
        request,
        "keys.html",
        problem.status if problem else 200,
        in_use=[row for row in rows if keys.is_in_use(row)],
        ended=[row for row in rows if not keys.is_in_use(row)][:50],
        areas=keys.AREAS,
        lifetimes=_LIFETIMES,
        made=made,
        problem=problem.detail if problem else "",
    )
