"""Routes that list environments and count them by kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from hub_server.access import Visitor
from hub_server.errors import NotAuthenticated
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
) -> listing.Filters:
    if user is None and (mine_only or starred_only):
        raise NotAuthenticated("your own environments and stars need an API key; run `prime login`")
    return listing.Filters(owner, visibility, search, tags or [], runtime, mine_only, starred_only)


Filters = Annotated[listing.Filters, Depends(_filters)]


@router.get("")
def list_environments(
    user: Visitor,
    services: HubServices,
    filters: Filters,
    sort_by: listing.SortKey | None = None,
    sort_order: Literal["asc", "desc"] = "desc",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, Any]:
    """List the environments that the caller may see: what fits a search best first, else the newest."""
    wanted = listing.Listing(filters, sort_by, sort_order, limit, offset)
    with services.database.read() as session:
        page, total = listing.list_environments(session, user, wanted)
        latest = service.latest_releases(session, page)
        rows = [answers.environment_row(found, latest.get(found.id)) for found in page]
    return {"data": rows, "total_count": total, "total": total}


@router.get("/facets")
def environment_facets(user: Visitor, services: HubServices, filters: Filters) -> dict[str, Any]:
    """Count the environments of a list, all its pages together, by tag, owner, visibility and runtime."""
    with services.database.read() as session:
        return {"data": listing.count_facets(session, user, filters)}
