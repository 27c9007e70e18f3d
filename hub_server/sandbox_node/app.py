"""All that one node answers: the hub's control API, and what clients ask of their sandboxes."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hub_server.sandbox_node.control import control_routes
from hub_server.sandbox_node.gateway.app import create_gateway
from hub_server.sandbox_node.network.exposures import PATH as EXPOSED
from hub_server.sandbox_node.network.ports import ExposedPorts
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.wire import NodeFacts


def create_node_app(node: Node, secret: str, facts: Callable[[], NodeFacts]) -> ASGIApp:
    """Return the app of a node. `secret` (hexadecimal) opens the control API, tokens made with it open sandboxes."""

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    control = Starlette(routes=[Route("/health", health), *control_routes(node, secret, facts)])
    gateway = create_gateway(node, bytes.fromhex(secret))

    ports = ExposedPorts(node.exposures)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Requests to sandboxes are the many: they pass no router.
        if scope["type"] == "lifespan" or scope["path"] == "/health" or scope["path"].startswith("/control/"):
            await control(scope, receive, send)
        elif scope["path"].startswith(EXPOSED):
            await ports(scope, receive, send)
        else:
            await gateway(scope, receive, send)

    return app
