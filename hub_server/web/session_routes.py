"""Signing in and out in a browser, and the approval of a login that waits in a terminal."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from hub_server.access import Visitor
from hub_server.accounts import challenges
from hub_server.accounts.keys import WRITE, allows, user_of_key
from hub_server.accounts.service import SESSION_HOURS, close_browser_session, open_browser_session
from hub_server.accounts.tables import ApiKey
from hub_server.errors import Forbidden
from hub_server.services import HubServices, Services
from hub_server.web import forms
from hub_server.web.rendering import page

router = APIRouter(include_in_schema=False)

FormToken = Annotated[str, Form(max_length=200)]
ApiKeyField = Annotated[str, Form(max_length=400)]
_WRONG_KEY = "This API key is wrong or was revoked."
_NARROW_KEY = "This API key may not answer logins; use one with the scope account:write."
_NO_KEY = "Paste an API key first."


@router.get("/dashboard/signin")
def sign_in_page(request: Request, wanted: Annotated[str, Query(alias="next", max_length=2000)] = "/") -> Response:
    """Ask for an API key."""
    return page(request, "sign_in.html", wanted=_own_path(wanted), problem="")


@router.post("/dashboard/signin")
def sign_in(
    request: Request,
    services: HubServices,
    form_token: FormToken,
    api_key: ApiKeyField = "",
    wanted: Annotated[str, Form(alias="next", max_length=2000)] = "/",
) -> Response:
    """Sign in with an API key, and go on to the page that was wanted."""
    forms.check_form(services, request, form_token)
    user = user_of_key(services.database, api_key.strip())
    if user is None:
        problem = _WRONG_KEY if api_key.strip() else _NO_KEY
        return page(request, "sign_in.html", Forbidden.status, wanted=_own_path(wanted), problem=problem)
    response = RedirectResponse(_own_path(wanted), status_code=303)
    _keep_signed_in(services, request, response, user.api_key)
    return response


@router.post("/dashboard/signout")
def sign_out(request: Request, services: HubServices, form_token: FormToken) -> Response:
    """End the session of this browser."""
    forms.check_form(services, request, form_token)
    with services.database.write() as session:
        close_browser_session(session, request.cookies.get(forms.SESSION_COOKIE))
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(forms.SESSION_COOKIE)
    return response


@router.get("/dashboard/tokens/challenge")
def challenge_page(
    request: Request, services: HubServices, code: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """Ask the person in front of the browser whether a waiting login is theirs."""
    return _challenge_form(services, request, code)


@router.post("/dashboard/tokens/challenge")
def answer_challenge(
    user: Visitor,
    request: Request,
    services: HubServices,
    code: Annotated[str, Form(max_length=64)],
    form_token: FormToken,
    decision: Annotated[str, Form(pattern="^(approve|deny)$")],
    api_key: ApiKeyField = "",
) -> Response:
    """Approve or deny a waiting login, as whoever the key or the session says."""
    forms.check_form(services, request, form_token)
    key = api_key.strip()
    person = user_of_key(services.database, key) if key else user
    if person is None:
        return _challenge_form(services, request, code, problem=_WRONG_KEY if key else _NO_KEY)
    if person.api_key is not None and not allows(person.api_key, "account", WRITE):
        return _challenge_form(services, request, code, problem=_NARROW_KEY)
    with services.database.write() as session:
        if decision == "approve":
            challenges.approve(session, code, person)
        else:
            challenges.deny(session, code)
    response = page(request, "challenge_done.html", approved=decision == "approve", user=person)
    if key and person.api_key is not None and person.api_key.scopes is None:
        _keep_signed_in(services, request, response, person.api_key)
    return response


def _challenge_form(services: Services, request: Request, code: str, problem: str = "") -> Response:
    with services.database.read() as session:
        challenge = challenges.find_challenge(session, code)
    if challenge.encrypted_key is not None:
        return page(request, "challenge_done.html", approved=True)
    status = Forbidden.status if problem else 200
    return page(request, "challenge.html", status, challenge=challenge, code=code, problem=problem)


def _keep_signed_in(services: Services, request: Request, response: Response, key: ApiKey | None) -> None:
    if key is None or key.scopes is not None:
        raise Forbidden("this API key is limited to some scopes; a browser signs in with one that is not")
    with services.database.write() as session:
        cookie = open_browser_session(session, key)
    forms.set_cookie(response, request, forms.SESSION_COOKIE, cookie, max_age_s=SESSION_HOURS * 3600)


def _own_path(wanted: str) -> str:
    """Return a path of this hub to go on to: whatever might lead elsewhere becomes the first page."""
    is_own = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_own and wanted.isprintable() else "/"
