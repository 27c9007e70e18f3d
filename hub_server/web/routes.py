"""The pages: a start page, an environment, and the approval of a login."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import FileResponse
from fastapi.templating import Jinja2Templates
from sqlalchemy.orm import Session

from hub_server.accounts import challenges
from hub_server.accounts.service import SESSION_HOURS, open_browser_session, user_of_browser, user_of_key
from hub_server.accounts.tables import User
from hub_server.errors import Forbidden, Refusal
from hub_server.registry import service
from hub_server.services import HubServices, Services, public_url
from hub_server.web import forms

router = APIRouter(include_in_schema=False)

_PAGES = Path(__file__).parent / "pages"
_templates = Jinja2Templates(directory=_PAGES)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@router.get("/static/hub.css")
def stylesheet() -> FileResponse:
    """The one stylesheet, light and dark."""
    return FileResponse(_PAGES / "hub.css", media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@router.get("/")
def home_page(request: Request, services: HubServices) -> Response:
    """The newest public environments, and how to begin."""
    with services.database.read() as session:
        user = _browser_user(session, request)
        page, total = service.list_environments(session, user, service.Listing(limit=100))
        latest = service.latest_releases(session, page)
        rows = [(found, latest[found.id]) for found in page]
        return _page(request, "home.html", environments=rows, total=total, user=user)


@router.get("/dashboard/environments/{owner}/{name}")
def environment_page(owner: str, name: str, request: Request, services: HubServices) -> Response:
    """One environment: how to install it, and its versions."""
    with services.database.read() as session:
        user = _browser_user(session, request)
        try:
            environment = service.find_environment(session, user, owner, name)
        except Refusal as refusal:
            return _refused(request, refusal)
        releases = service.releases_of(session, environment)
        return _page(request, "environment.html", environment=environment, releases=releases, user=user)


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
        return _refused(request, refusal)
    response = _page(request, "challenge_done.html", approved=decision == "approve", user=user)
    if cookie is not None:
        forms.set_cookie(response, request, forms.SESSION_COOKIE, cookie, max_age_s=SESSION_HOURS * 3600)
    return response


def _challenge_form(services: Services, request: Request, code: str, problem: str = "") -> Response:
    with services.database.read() as session:
        user = _browser_user(session, request)
        try:
            challenge = challenges.find_challenge(session, code)
        except Refusal as refusal:
            return _refused(request, refusal)
    if challenge.encrypted_key is not None:
        return _page(request, "challenge_done.html", approved=True, user=user)
    cookie = request.cookies.get(forms.FORM_COOKIE) or forms.new_cookie()
    token = forms.form_token(services, cookie, code)
    status = Forbidden.status if problem else 200
    response = _page(
        request, "challenge.html", status, challenge=challenge, code=code, form_token=token, problem=problem, user=user
    )
    forms.set_cookie(response, request, forms.FORM_COOKIE, cookie, max_age_s=3600)
    return response


def _person(services: Services, request: Request, api_key: str) -> tuple[User | None, bool]:
    """Return who answers, and whether they proved it just now with a key."""
    if api_key:
        return user_of_key(services.database, api_key), True
    with services.database.read() as session:
        return _browser_user(session, request), False


def _browser_user(session: Session, request: Request) -> User | None:
    return user_of_browser(session, request.cookies.get(forms.SESSION_COOKIE))


def _refused(request: Request, refusal: Refusal) -> Response:
    return _page(request, "refused.html", refusal.status, detail=refusal.detail, user=None)


def _page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
    context["hub_url"] = public_url(request)
    return _templates.TemplateResponse(request, name, context, status_code=status, headers=dict(_HEADERS))
