"""The gateway: routes what clients send to a sandbox, after its token was checked.

POST /{user_ns}/{sandbox}/command_session.CommandSession/{method}   see command_sessions.py
POST /{user_ns}/{sandbox}/exec                                      see commands.py
POST /{user_ns}/{sandbox}/upload, GET .../download, .../read-file   see files.py
POST /{user_ns}/{sandbox}/run-code, .../run-batch                   see programs.py
any  /{user_ns}/{sandbox}/ports/{port}/{path}                       goes to a server in the sandbox, WebSockets too
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.gateway import command_sessions, commands, files, programs
from hub_server.sandbox_node.gateway.access import Door, SandboxRegistry
from hub_server.sandbox_node.gateway.bodies import drain, while_connected
from hub_server.sandbox_node.gateway.connect import serve
from hub_server.sandbox_node.gateway.refusals import BadRequest, http_answer, rpc_error
from hub_server.sandbox_node.network.port_headers import Place
from hub_server.sandbox_node.network.ports import forward, origin_of, refuse
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandboxes.tokens import Refused

USER_NS = "sandboxes"  # what the hub tells clients as the first part of their paths
PORTS = "ports"
Handler = Callable[[Sandbox, Request], Coroutine[Any, Any, Response]]

ROUTES: dict[str, tuple[str, Handler]] = {
    "exec": ("POST", commands.execute),
    "upload": ("POST", files.upload),
    "download": ("GET", files.download),
    "read-file": ("GET", files.read_file),
    "run-code": ("POST", programs.run_code),
    "run-batch": ("POST", programs.run_batch),
}


class Gateway:
    """An ASGI app over the sandboxes of a node. It finds its few routes by itself, which is quicker."""

    def __init__(self, sandboxes: SandboxRegistry, secret: bytes) -> None:
        self._door = Door(sandboxes, secret)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            await self._serve(request)
        except ClientDisconnect:
            return  # nobody is left to answer

    async def _serve(self, request: Request) -> None:
        path: str = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        _, user_ns, sandbox_id, what, *_ = *path.split("/", 3), "", "", ""
        if user_ns != USER_NS:
            what = ""
        authorization = request.headers.get("authorization", "")
        service, _, name = what.partition("/")
        if service == command_sessions.SERVICE and name in command_sessions.METHODS:
            method = command_sessions.METHODS[name]
            await serve(method, lambda: self._door.open(sandbox_id, authorization), rpc_error, request)
            return
        if service == PORTS:
            await self._serve_port(name, sandbox_id, authorization, request)
            return
        response = await self._answer(what, sandbox_id, authorization, request)
        await response(request.scope, request.receive, request._send)

    async def _serve_port(self, name: str, sandbox_id: str, authorization: str, request: Request) -> None:
        try:
            sandbox = self._door.open(sandbox_id, authorization)
            place = place_of(request.scope, f"/{USER_NS}/{sandbox_id}/{PORTS}/", name)
        except Exception as error:  # noqa: BLE001  what is unknown is logged and answered by 500
            await drain(request)
            await http_answer(error, command=True)(request.scope, request.receive, request._send)
            return
        await forward(sandbox, place, request.scope, request.receive, request._send)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = HTTPConnection(scope)
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        _, user_ns, sandbox_id, what, name, *_ = *path.split("/", 4), "", "", "", ""
        try:
            if (user_ns, what) != (USER_NS, PORTS):
                raise BadRequest("no WebSocket is served here", 404)
            sandbox = self._door.open(sandbox_id, socket.headers.get("authorization", ""))
            place = place_of(scope, f"/{USER_NS}/{sandbox_id}/{PORTS}/", name)
        except (BadRequest, Refused, SandboxError) as error:
            await refuse(scope, receive, send, 403, str(error))
            return
        await forward(sandbox, place, scope, receive, send)

    async def _answer(self, what: str, sandbox_id: str, authorization: str, request: Request) -> Response:
        if what not in ROUTES:
            return JSONResponse({"detail": "Not Found"}, 404)
        verb, handler = ROUTES[what]
        if request.method != verb:
            return JSONResponse({"detail": "Method Not Allowed"}, 405, {"allow": verb})
        try:
            answering = handler(self._door.open(sandbox_id, authorization), request)
            return await (while_connected(request, answering) if verb == "GET" else answering)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  what is unknown is logged and answered by 500
            if verb != "GET":
                await drain(request)
            return http_answer(error, command=handler is not files.upload and verb == "POST")


def place_of(scope: Scope, base: str, name: str) -> Place:
    """Return where the port is that a path below `base` names first.

    Raises:
        BadRequest: it names none.
    """
    port = name.partition("/")[0]
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise BadRequest(f"{port[:20]!a} is no port")
    return Place(origin_of(scope), f"{base}{port}/".encode(), int(port), authorized=True)


def create_gateway(sandboxes: SandboxRegistry, secret: bytes) -> Gateway:
    """Return the app that drives these sandboxes for the bearers of tokens made with the secret."""
    return Gateway(sandboxes, secret)
