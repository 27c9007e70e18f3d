"""All pages."""

from __future__ import annotations

from hub_server.web import (
    environment_routes,
    evaluation_routes,
    key_pages,
    owner_routes,
    sandbox_pages,
    session_routes,
    source_routes,
    team_pages,
)

_PAGES = (
    environment_routes, source_routes, evaluation_routes, sandbox_pages, owner_routes, session_routes, key_pages,
    team_pages,
)  # fmt: skip
routers = [pages.router for pages in _PAGES]
