"""The pages: a start page, an environment, and the approval of a login."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import FileResponse

from hub_server.accounts import challenges
from hub_server.accounts.service import SESSION_HOURS, open_browser_session, user_of_key
from hub_server.accounts.tables import User
from hub_server.errors import Forbidden, Refusal
from hub_server.evaluations.service import Listing as EvaluationListing
from hub_server.evaluations.service import list_evaluations
from hub_server.registry import service
from hub_server.services import HubServices, Services
from hub_server.web import forms
from hub_server.web.rendering import PAGES, browser_user, page, refused

router = APIRouter(include_in_schema=False)

_EVALUATIONS_SHOWN = 50


@router.get("/static/hub.css")
def stylesheet() -> FileResponse:
    """The one stylesheet, light and dark."""
    return FileResponse(PAGES / "hub.css", media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@router.get("/")
def home_page(request: Request, services: HubServices) -> Response:
    """The newest public environments, and how to begin."""
    with services.database.read() as session:
        user = browser_user(session, request)
        found, total = service.list_environments(session, user, service.Listing(limit=100))
        latest = service.latest_releases(session, found)
        rows = [(environment, latest[environment.id]) for environment in found]
        return page(request, "home.html", environments=rows, total=total, user=user)


@router.get("/dashboard/environments/{owner}/{name}")
def environment_page(owner: str, name: str, request: Request, services: HubServices) -> Response:
    """One environment: how to install it, its versions, and its newest evaluations."""
    with services.database.read() as session:
        user = browser_user(session, request)
        try:
            environment = service.find_environment(session, user, owner, name)
        except Refusal as refusal:
            return refused(request, refusal)
        releases = service.releases_of(session, environment)
        listing = EvaluationListing(environment_id=environment.id, limit=_EVALUATIONS_SHOWN)
        evaluations, total = list_evaluations(session, user, listing)
        return page(
            request,
            "environment.html",
            environment=environment,
            releases=releases,
            evaluations=evaluations,
            total_evaluations=total,
            user=user,
        )


@router.get("/dashboard/tokens/challenge")
def challenge_page(request: Request, services: HubServices, code: str = "") -> Response:
    """Ask the person in front of the browser whether a waiting login is theirs."""
    return _challenge_form(services, request, code)


@router.post("/dashboard/tokens/challenge")
def answer_challenge(
    request: Request,
    services: HubServices,
    code: Annotated[str, Form(max_length=64)],
    form_token: Annotated[str, Form(max_length=200)],
    decision: Annotated[str, Form(pattern="^(approve|deny)$")],
    api_key: Annotated[str, Form(max_length=400)] = "",
) -> Response:
    """Approve or deny a waiting login, as whoever the key or the session says."""
    try:
        forms.check_form(services, request, code, form_token)
        user, signed_in_now = _person(services, request, api_key.strip())
        if user is None:
            problem = "This API key is wrong or was revoked." if api_key.strip() else "Paste an API key first."
            return _challenge_form(services, request, code, problem=problem)
        with services.database.write() as session:
            if decision == "approve":
                challenges.approve(session, code, user)
            else:
                challenges.deny(session, code)
            cookie = open_browser_session(session, user) if signed_in_now else None
    except Refusal as refusal:
        return refused(request, refusal)
    response = page(request, "challenge_done.html", approved=decision == "approve", user=user)
    if cookie is not None:
        forms.set_cookie(response, request, forms.SESSION_COOKIE, cookie, max_age_s=SESSION_HOURS * 3600)
    return response


def _challenge_form(services: Services, request: Request, code: str, problem: str = "") -> Response:
    with services.database.read() as session:
        user = browser_user(session, request)
        try:
            challenge = challenges.find_challenge(session, code)
        except Refusal as refusal:
            return refused(request, refusal)
    if challenge.encrypted_key is not None:
        return page(request, "challenge_done.html", approved=True, user=user)
    cookie = request.cookies.get(forms.FORM_COOKIE) or forms.new_cookie()
    token = forms.form_token(services, cookie, code)
    status = Forbidden.status if problem else 200
    response = page(
        request, "challenge.html", status, challenge=challenge, code=code, form_token=token, problem=problem, user=user
    )
    forms.set_cookie(response, request, forms.FORM_COOKIE, cookie, max_age_s=3600)
    return response


def _person(services: Services, request: Request, api_key: str) -> tuple[User | None, bool]:
    """Return who answers, and whether they proved it just now with a key."""
    if api_key:
        return user_of_key(services.database, api_key), True
    with services.database.read() as session:
        return browser_user(session, request), False
