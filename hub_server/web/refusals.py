"""What a person in front of a browser sees when something is not there or not possible."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from hub_server.access import IN_A_BROWSER, RIGHTS
from hub_server.web.rendering import page

SIGN_IN_PATH = "/dashboard/signin"
_FOR_PROGRAMS = ("/api/", "/index/", "/simple/")
_TITLES = {
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    409: "Not possible",
    429: "Too many requests",
}


def is_for_a_browser(request: Request) -> bool:
    """Say whether a person waits for this answer: a page of ours, or no route at all that a browser asks for."""
    route = request.scope.get("route")
    if route is not None:
        return RIGHTS.get(route.name) in IN_A_BROWSER
    return not request.url.path.startswith(_FOR_PROGRAMS) and "text/html" in request.headers.get("accept", "")


def answer_page(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the page that says why not; who is not signed in and has to be goes there, and comes back."""
    if status == 401 and request.method == "GET":
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{SIGN_IN_PATH}?{urlencode({'next': wanted})}", status_code=303)
    title = _TITLES.get(status, "That did not work")
    response = page(request, "refused.html", status, code=status, title=title, detail=detail)
    response.headers.update(headers or {})
    return response
