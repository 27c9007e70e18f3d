"""Builds the ASGI app from its domains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import BaseRoute

from hub_server.access import check_every_route_is_listed, enforce
from hub_server.accounts import key_routes, team_routes
from hub_server.accounts import routes as account_routes
from hub_server.accounts.audit import NotedAddress
from hub_server.attestations import routes as attestation_routes
from hub_server.checks import routes as check_routes
from hub_server.errors import Refusal, TooManyRequests
from hub_server.evaluations import routes as evaluation_routes
from hub_server.middleware import BoundedBody, OneSpelling
from hub_server.openapi import document
from hub_server.operation import routes as operation_routes
from hub_server.operation.addresses import PublicAddress
from hub_server.operation.health import Readiness
from hub_server.operation.metrics import StoreFigures
from hub_server.operation.requests import ObservedRequests
from hub_server.registry import (
    community_routes,
    index_routes,
    legacy_routes,
    listing_routes,
    status_routes,
    upload_routes,
)
from hub_server.registry import routes as registry_routes
from hub_server.registry.kept_answers import KeptAnswers
from hub_server.sandboxes import image_routes, node_routes
from hub_server.sandboxes import routes as sandbox_routes
from hub_server.secrets import routes as secret_routes
from hub_server.services import Services
from hub_server.traces import routes as trace_routes
from hub_server.traces.errors import TraceRefusal, envelope, is_about_traces
from hub_server.web.refusals import answer_page, is_for_a_browser
from hub_server.web.routes import routers as page_routers
from prime_cli import __version__


def create_app(services: Services) -> FastAPI:
    """Return the hub as an ASGI app over open services."""
    app = FastAPI(
        title="prime hub",
        version=__version__,
        dependencies=[Depends(enforce)],
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.state.readiness = Readiness(services)
    services.metrics.registry.register(StoreFigures(services))
    if (change_count := services.database.change_count()) is not None:
        app.add_middleware(KeptAnswers, change_count=change_count)
    app.add_middleware(BoundedBody)
    app.add_middleware(ObservedRequests, metrics=services.metrics)  # below the one that gives a request a new scope
    app.add_middleware(OneSpelling)
    if services.settings.public_url is not None:
        app.add_middleware(PublicAddress, public_url=services.settings.public_url)
    app.add_middleware(NotedAddress)
    app.add_exception_handler(Refusal, _refuse)
    app.add_exception_handler(RequestValidationError, _explain)
    app.add_exception_handler(DataError, _refuse_value)
    app.add_exception_handler(StarletteHTTPException, _answer_http_error)
    routers = all_routers()
    for router in routers:
        app.include_router(router)
    app.openapi = partial(document, app, routes_of(routers))  # type: ignore[method-assign]
    return app


def all_routers() -> list[APIRouter]:
    """Return the routers of all domains.

    Each of their routes stands in the table of rights, else this is an assertion that fails at the first start.
    """
    # A path is compared with one route after the other, and installers ask the most: the index comes first; then
    # sandboxes, which are made and looked after many times a second.
    domains = (
        index_routes, image_routes, sandbox_routes, legacy_routes, attestation_routes, account_routes, key_routes,
        team_routes, listing_routes,
        registry_routes, community_routes, status_routes, upload_routes, check_routes, evaluation_routes, secret_routes,
        trace_routes, node_routes, operation_routes,
    )  # fmt: skip
    routers = [*(domain.router for domain in domains), *page_routers]
    check_every_route_is_listed(routes_of(routers))
    return routers


def routes_of(routers: Sequence[APIRouter]) -> list[BaseRoute]:
    """Return all routes of some routers."""
    return [route for router in routers for route in router.routes]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Look after the sandbox nodes; write what was gathered in memory when the server is stopped."""
    services: Services = app.state.services
    async with services.fleet.watched():
        yield
    await run_in_threadpool(services.downloads.flush, services.database)


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, TooManyRequests) else {}
    if is_for_a_browser(request):
        return answer_page(request, error.status, error.detail, headers)
    if error.status == 401:
        scheme = "Basic" if request.url.path.startswith("/index/") else "Bearer"
        headers["WWW-Authenticate"] = f'{scheme} realm="prime hub"'
    about_traces = is_about_traces(request.url.path)
    body = envelope(error) if about_traces else {"detail": error.detail}
    return JSONResponse(body, status_code=error.status, headers=headers)


def _refuse_value(request: Request, _error: Exception) -> Response:
    """Answer for a value that got past the models and that PostgreSQL does not take, such as a text with a NUL."""
    words = "a value in this request cannot be kept: it is too long or too large, or holds a NUL character"
    if is_for_a_browser(request):
        return answer_page(request, 400, words)
    return JSONResponse({"detail": words}, status_code=400)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer what no route of ours refused: paths that are none, methods that a path does not have."""
    assert isinstance(error, StarletteHTTPException)
    if is_for_a_browser(request):
        return answer_page(request, error.status_code, str(error.detail))
    return await http_exception_handler(request, error)


def _explain(request: Request, error: Exception) -> Response:
    """Name each wrong value without repeating it: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    if is_for_a_browser(request):
        names = ", ".join(dict.fromkeys(str(item["loc"][-1]) for item in error.errors()))
        return answer_page(request, 422, f"This is missing or not possible here: {names}.")
    if is_about_traces(request.url.path):
        named = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors())
        return JSONResponse(envelope(TraceRefusal("invalid_filter", named)), status_code=400)
    problems = [{"loc": list(item["loc"]), "msg": item["msg"], "type": item["type"]} for item in error.errors()]
    return JSONResponse({"detail": problems}, status_code=422)
