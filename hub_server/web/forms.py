"""Forms that can only come from a page of this hub, and the cookies behind them."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from fastapi import Request, Response

from hub_server.errors import Forbidden
from hub_server.services import Services

FORM_COOKIE = "prime_hub_form"
SESSION_COOKIE = "prime_hub_session"
_FORM_PURPOSE = "form"


def form_token(services: Services, cookie: str, subject: str) -> str:
    """Return the hidden field that ties a form about `subject` to the browser that holds `cookie`."""
    return services.signer.fingerprint(_FORM_PURPOSE, f"{cookie} {subject}")


def new_cookie() -> str:
    """Return a fresh value for the form cookie."""
    return secrets.token_urlsafe(24)


def check_form(services: Services, request: Request, subject: str, token: str) -> None:
    """Check that a posted form came from a page of ours, in this browser.

    Raises:
        Forbidden: it did not, or the browser keeps no cookies.
    """
    cookie = request.cookies.get(FORM_COOKIE, "")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.url.netloc
    if foreign or not cookie or not hmac.compare_digest(token, form_token(services, cookie, subject)):
        raise Forbidden("this form did not come from a page of this hub; open the page again (cookies are needed)")


def set_cookie(response: Response, request: Request, name: str, value: str, *, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send."""
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=max_age_s, httponly=True, samesite="strict", secure=secure)
