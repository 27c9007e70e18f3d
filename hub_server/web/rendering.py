"""What every page has: its template, its headers, and who is signed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.templating import Jinja2Templates
from sqlalchemy.orm import Session

from hub_server.accounts.service import user_of_browser
from hub_server.accounts.tables import User
from hub_server.errors import Refusal
from hub_server.services import public_url
from hub_server.web import forms

PAGES = Path(__file__).parent / "pages"
_templates = Jinja2Templates(directory=PAGES)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def browser_user(session: Session, request: Request) -> User | None:
    """Return who is signed in in this browser; None when nobody is."""
    return user_of_browser(session, request.cookies.get(forms.SESSION_COOKIE))


def page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
    """Return the page `name` made with `context`."""
    context["hub_url"] = public_url(request)
    return _templates.TemplateResponse(request, name, context, status_code=status, headers=dict(_HEADERS))


def refused(request: Request, refusal: Refusal) -> Response:
    """Return the page that says why something is not possible."""
    return page(request, "refused.html", refusal.status, detail=refusal.detail, user=None)
