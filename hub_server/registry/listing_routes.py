"""Routes that list environments and count them by kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from hub_server.access import Visitor
from hub_server.checks.answers import action_status, states_of_action
from hub_server.checks.service import latest_checks
from hub_server.errors import NotAuthenticated
from hub_server.paging import Limit, Offset
from hub_server.registry import answers, listing, service
from hub_server.services import HubServices
from prime_cli.hub.models import Visibility

router = APIRouter(prefix="/api/v1/environmentshub", tags=["registry"])


async def _filters(
    user: Visitor,
    owner: str | None = None,
    visibility: Visibility | None = None,
    search: Annotated[str | None, Query(max_length=200)] = None,
    tags: Annotated[list[str] | None, Query()] = None,
    runtime: str | None = None,
    mine_only: bool = False,
    starred_only: bool = False,
    ci_status: str | None = None,
) -> listing.Filters:
    if user is None and (mine_only or starred_only):
        raise NotAuthenticated("your own environments and stars need an API key; run `prime login`")
    states = states_of_action(ci_status) if ci_status else ()
    return listing.Filters(owner, visibility, search, tags or [], runtime, mine_only, starred_only, states)


Filters = Annotated[listing.Filters, Depends(_filters)]


@router.get("")
def list_environments(
    user: Visitor,
    services: HubServices,
    filters: Filters,
    sort_by: listing.SortKey | None = None,
    sort_order: Literal["asc", "desc"] = "desc",
    limit: Limit = 20,
    offset: Offset = 0,
    include_ci_status: bool = False,
) -> dict[str, Any]:
    """List the environments that the caller may see: what fits a search best first, else the newest."""
    wanted = listing.Listing(filters, sort_by, sort_order, limit, offset)
    with services.database.read() as session:
        page, total = listing.list_environments(session, user, wanted)
        latest = service.latest_releases(session, page)
        rows = [answers.environment_row(found, latest.get(found.id)) for found in page]
        if include_ci_status:
            checks = latest_checks(session, [release.id for release in latest.values()])
            for row, found in zip(rows, page, strict=True):
                row["latest_ci_status"] = action_status(checks.get(found.latest_release_id or ""))
    return {"data": rows, "total_count": total, "total": total}


@router.get("/facets")
def environment_facets(user: Visitor, services: HubServices, filters: Filters) -> dict[str, Any]:
    """Count the environments of a list, all its pages together, by tag, owner, visibility and runtime."""
    with services.database.read() as session:
        return {"data": listing.count_facets(session, user, filters)}
