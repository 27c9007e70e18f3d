"""The gateway: routes what clients send to a sandbox, after its token was checked.

POST /{user_ns}/{sandbox}/command_session.CommandSession/{method}   see command_sessions.py
POST /{user_ns}/{sandbox}/exec                                      see commands.py
POST /{user_ns}/{sandbox}/upload, GET .../download, .../read-file   see files.py
POST /{user_ns}/{sandbox}/run-code, .../run-batch                   see programs.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hub_server.sandbox_node.gateway import command_sessions, commands, files, programs
from hub_server.sandbox_node.gateway.access import Door, SandboxRegistry
from hub_server.sandbox_node.gateway.bodies import drain
from hub_server.sandbox_node.gateway.connect import serve
from hub_server.sandbox_node.gateway.refusals import http_answer, rpc_error
from hub_server.sandbox_node.sandbox import Sandbox

USER_NS = "sandboxes"  # what the hub tells clients as the first part of their paths
Handler = Callable[[Sandbox, Request], Awaitable[Response]]

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
        if scope["type"] != "http":
            raise RuntimeError(f"the gateway serves HTTP requests only, no {scope['type']}")
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
        response = await self._answer(what, sandbox_id, authorization, request)
        await response(request.scope, request.receive, request._send)

    async def _answer(self, what: str, sandbox_id: str, authorization: str, request: Request) -> Response:
        if what not in ROUTES:
            return JSONResponse({"detail": "Not Found"}, 404)
        verb, handler = ROUTES[what]
        if request.method != verb:
            return JSONResponse({"detail": "Method Not Allowed"}, 405, {"allow": verb})
        try:
            return await handler(self._door.open(sandbox_id, authorization), request)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  what is unknown is logged and answered by 500
            await drain(request)
            return http_answer(error, command=handler is not files.upload and verb == "POST")


def create_gateway(sandboxes: SandboxRegistry, secret: bytes) -> Gateway:
    """Return the app that drives these sandboxes for the bearers of tokens made with the secret."""
    return Gateway(sandboxes, secret)
