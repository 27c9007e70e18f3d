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
_FORM_VALID_S = 12 * 3600


class PageForms:
    """The forms of one page: tokens that tie them to this browser, and the cookie that is set once a token was made."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._request = request
        self._cookie = request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(24)
        self._used = False

    def token(self, subject: str) -> str:
        """Return the hidden field of a form about `subject`, which is the path that it is sent to."""
        self._used = True
        return _token(self._services, self._cookie, subject)

    def keep_cookie(self, response: Response) -> None:
        """Let the browser keep what its forms are checked by, where the page has any."""
        if self._used:
            set_cookie(response, self._request, FORM_COOKIE, self._cookie, max_age_s=_FORM_VALID_S)


def check_form(services: Services, request: Request, token: str) -> None:
    """Check that what is posted to this path came from a page of ours, in this browser.

    Raises:
        Forbidden: it did not, or the browser keeps no cookies.
    """
    cookie = request.cookies.get(FORM_COOKIE, "")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.url.netloc
    if foreign or not cookie or not hmac.compare_digest(token, _token(services, cookie, request.url.path)):
        raise Forbidden("this form did not come from a page of this hub; open the page again (cookies are needed)")


def set_cookie(response: Response, request: Request, name: str, value: str, *, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send."""
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=max_age_s, httponly=True, samesite="strict", secure=secure)


def _token(services: Services, cookie: str, subject: str) -> str:
    return services.signer.fingerprint(_FORM_PURPOSE, f"{cookie} {subject}")
