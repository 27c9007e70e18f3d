"""What every page has: its template, its headers, its forms, and who is signed in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hub_server.attestations.publishers import describe
from hub_server.services import Services, public_url
from hub_server.web.forms import PageForms

PAGES = Path(__file__).parent / "pages"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
    """Return the page `name` made with `context`; every page knows the hub's address and who is signed in."""
    services = request.app.state.services
    assert isinstance(services, Services)
    forms = PageForms(services, request)
    context = {
        "user": getattr(request.state, "user", None),
        "hub_url": public_url(request),
        "here": request.url.path,
        "form_token": forms.token,
        **context,
    }
    html = _templates.get_template(name).render(context)
    response = HTMLResponse(html, status_code=status, headers=dict(_HEADERS))
    forms.keep_cookie(response)
    return response


def _date(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _size(count: int) -> str:
    """Return a number of bytes for people."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_of_unit = count / (1000 if unit == "kB" else 1000**2)
        if count_of_unit < 1000:
            return f"{count_of_unit:.1f} {unit}"
    return f"{count / 1000**3:.1f} GB"


def _reward(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 version, 2 versions."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _segment(text: str) -> str:
    return quote(text, safe="")


_templates = Environment(
    loader=FileSystemLoader(PAGES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_templates.filters["publisher"] = describe
_templates.filters.update(date=_date, moment=_moment, size=_size, reward=_reward, count_of=_count, segment=_segment)
