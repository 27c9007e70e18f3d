"""The page of somebody who publishes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import select

from hub_server.access import Visitor
from hub_server.accounts.tables import Owner
from hub_server.errors import NotFound
from hub_server.registry.listing import Filters, Listing, list_environments
from hub_server.services import HubServices
from hub_server.web.browsing import PER_PAGE, PageNumber, Pager
from hub_server.web.environment_routes import listed_rows
from hub_server.web.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/dashboard/owners/{owner}")
def owner_page(owner: str, user: Visitor, request: Request, services: HubServices, number: PageNumber = 1) -> Response:
    """Who publishes under this name, and what of it the visitor may see."""
    with services.database.read() as session:
        found = session.scalar(select(Owner).where(Owner.slug == owner.lower()))
        if found is None:
            raise NotFound(f"nobody is called {owner!r} on this hub")
        theirs = Filters(owner=found.slug)
        listing = Listing(theirs, "updated_at", limit=PER_PAGE, offset=(number - 1) * PER_PAGE)
        environments, total = list_environments(session, user, listing)
        rows = listed_rows(session, environments)
        return page(request, "owner.html", owner=found, rows=rows, pager=Pager(number, total, PER_PAGE))
