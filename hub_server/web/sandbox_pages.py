"""The pages of sandboxes: those of who is signed in and of their teams, and one of them with what it really got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from hub_server.access import Caller, PathSandbox
from hub_server.sandboxes import nodes, service
from hub_server.services import HubServices
from hub_server.web.browsing import PageNumber, Pager
from hub_server.web.readable import short_facts
from hub_server.web.rendering import page

router = APIRouter(include_in_schema=False)

_ON_A_PAGE = 50
_BYTES = ("memory_bytes", "disk_bytes", "file_bytes")


@router.get("/dashboard/sandboxes")
def sandboxes_page(user: Caller, request: Request, services: HubServices, number: PageNumber = 1) -> Response:
    """Sandboxes, newest first, and where new ones would run."""
    listing = service.Listing(with_teams=True, limit=_ON_A_PAGE, skip=(number - 1) * _ON_A_PAGE)
    with services.database.read() as session:
        found, total = service.list_sandboxes(session, user, listing)
        live = nodes.live_counts(session)
        there = [(node, live.get(node.id, 0)) for node in nodes.present_nodes(session)]
    return page(
        request, "sandboxes.html", sandboxes=found, nodes=there, pager=Pager(number, total, _ON_A_PAGE)
    )  # fmt: skip


@router.get("/dashboard/sandboxes/{sandbox_id}")
def sandbox_page(sandbox: PathSandbox, request: Request) -> Response:
    """One sandbox: how it stands, what it was asked for, and how far each limit is enforced."""
    asked = {
        "Image": sandbox.image, "Lifetime": _minutes(sandbox.timeout_minutes),
        "Idle limit": _minutes(sandbox.idle_timeout_minutes), "Start command": sandbox.start_command,
        "Labels": ", ".join(each.label for each in sandbox.labels), "May reach": _reach(sandbox.allowlist),
        "May not reach": ", ".join(sandbox.denylist or ()), "Variables": ", ".join(sandbox.environment_vars or ()),
        "Secrets": ", ".join(sandbox.secret_names),
    }  # fmt: skip
    return page(
        request, "sandbox.html", sandbox=sandbox, asked=short_facts(asked), got=_limits(sandbox.enforcement)
    )  # fmt: skip


def _limits(enforcement: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return each limit with its value and how it is held."""
    if enforcement is None:
        return []
    held = enforcement["held"]
    return [
        (name.removesuffix("_bytes").replace("_", " "), _amount(name, value), held.get(name, "not enforced"))
        for name, value in enforcement["limits"].items()
    ]


def _amount(name: str, value: float) -> str:
    return f"{value / 1024**2:,.0f} MiB" if name in _BYTES else f"{value:,g}"


def _minutes(minutes: int | None) -> str:
    if minutes is None:
        return ""
    return f"{minutes} min" if minutes > 0 else "without end"


def _reach(allowlist: list[str] | None) -> str:
    return "nobody" if allowlist == [] else ", ".join(allowlist or ())
