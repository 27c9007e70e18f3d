"""The API by which a hub drives a node; its models and routes stand in `wire.py`."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub_server.sandbox_node import wire
from hub_server.sandbox_node.background_jobs import job_statuses
from hub_server.sandbox_node.errors import Gone, NotPossible, NotStarted, SandboxError
from hub_server.sandbox_node.network.exposures import Exposure, TooManyExposures
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.specification import MEBIBYTE
from hub_server.sandbox_node.wire import CreateSandbox, Deleted, EgressPolicy, Ids, JobFacts, Jobs, Logs, NodeFacts

_MOST_BODY = 4 * MEBIBYTE
Answer = Callable[[Request], Awaitable[BaseModel | None]]
Model = TypeVar("Model", bound=BaseModel)


class Refused(Exception):
    """A request that is answered with a status and a reason."""

    def __init__(self, status: int, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.hint = status, detail, hint

    def response(self) -> Response:
        """Return it as an answer."""
        return JSONResponse({"detail": self.detail, "hint": self.hint}, status_code=self.status)


def control_routes(node: Node, secret: str, facts: Callable[[], NodeFacts]) -> Sequence[Route]:
    """Return the routes; whoever knows `secret` may do all of it."""
    control = Control(node, facts)

    def route(path: str, answer: Answer, method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                _check(request, secret)
                model = await answer(request)
            except Refused as refused:
                return refused.response()
            except NotPossible as error:
                return Refused(422, error.detail, error.hint).response()
            except (Gone, NotStarted) as error:
                return Refused(409, error.detail, error.hint).response()
            except SandboxError as error:
                return Refused(502, error.detail, error.hint).response()
            if model is None:
                return Response(status_code=204)
            return Response(model.model_dump_json(), media_type="application/json")

        return Route(path, endpoint, methods=[method])

    one = "/control/sandboxes/{sandbox_id}"
    return [
        route("/control/node", control.node_facts, "GET"),
        route("/control/sandboxes", control.create, "POST"),
        route("/control/sandboxes:delete", control.delete_many, "POST"),
        route("/control/background-jobs", control.background_jobs, "POST"),
        route(one, control.get, "GET"),
        route(one, control.delete, "DELETE"),
        route(f"{one}/logs", control.logs, "GET"),
        route(f"{one}/egress", control.egress, "GET"),
        route(f"{one}/egress", control.set_egress, "PUT"),
        route(f"{one}/exposures", control.exposures, "GET"),
        route(f"{one}/exposures", control.expose, "POST"),
        route(f"{one}/exposures/{{exposure_id}}", control.unexpose, "DELETE"),
    ]


class Control:
    """What is done for each request."""

    def __init__(self, node: Node, facts: Callable[[], NodeFacts]) -> None:
        self._node, self._facts = node, facts

    async def node_facts(self, request: Request) -> NodeFacts:
        """Say what this node is and how full it is."""
        return self._facts()

    async def create(self, request: Request) -> BaseModel:
        """Make a sandbox."""
        return await self._node.create(await _read(request, CreateSandbox))

    async def get(self, request: Request) -> BaseModel:
        """Say how a sandbox is."""
        return self._node.resident(self._known(request)).facts()

    async def delete(self, request: Request) -> BaseModel:
        """End a sandbox."""
        return await self._node.delete(self._known(request))

    async def delete_many(self, request: Request) -> BaseModel:
        """End several sandboxes, all at once."""
        ids = (await _read(request, Ids)).ids
        there = await self._node.delete_many(ids)
        return Deleted(deleted=there, not_there=[name for name in ids if name not in set(there)])

    async def logs(self, request: Request) -> BaseModel:
        """Return the last of what the start command wrote."""
        return Logs(logs=self._node.resident(self._known(request)).log.text())

    async def egress(self, request: Request) -> BaseModel:
        """Say whom a sandbox may reach."""
        return self._node.egress(self._known(request))

    async def set_egress(self, request: Request) -> BaseModel:
        """Change whom a sandbox may reach."""
        return await self._node.set_egress(self._known(request), await _read(request, EgressPolicy))

    async def exposures(self, request: Request) -> BaseModel:
        """List the exposed ports of a sandbox."""
        exposed = self._node.exposures.of(self._known(request))
        return wire.Exposures(exposures=[self._shown(exposure) for exposure in exposed])

    async def expose(self, request: Request) -> BaseModel:
        """Let a port of a sandbox be reached by URL."""
        sandbox = self._node.get(self._known(request))
        wanted = await _read(request, wire.ExposePort)
        try:
            return self._shown(self._node.exposures.add(sandbox, wanted.port, wanted.name))
        except TooManyExposures as error:
            raise Refused(409, error.detail, error.hint) from None

    async def unexpose(self, request: Request) -> None:
        """Let a URL lead nowhere any more."""
        exposure_id: str = request.path_params["exposure_id"]
        try:
            self._node.exposures.remove(self._known(request), exposure_id)
        except KeyError:
            raise Refused(404, f"this sandbox has no exposure {exposure_id}") from None

    def _shown(self, exposure: Exposure) -> wire.Exposure:
        return wire.Exposure(
            exposure_id=exposure.id, sandbox_id=exposure.sandbox_id, port=exposure.port, name=exposure.name,
            url=self._facts().url + exposure.path(), created_at=exposure.created_at,
        )  # fmt: skip

    async def background_jobs(self, request: Request) -> BaseModel:
        """Say how background jobs stand."""
        return JobFacts(jobs=await job_statuses(self._node.get, (await _read(request, Jobs)).jobs))

    def _known(self, request: Request) -> str:
        sandbox_id: str = request.path_params["sandbox_id"]
        try:
            self._node.resident(sandbox_id)
        except KeyError:
            raise Refused(404, f"this node knows no sandbox {sandbox_id}") from None
        return sandbox_id


def _check(request: Request, secret: str) -> None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), secret.encode()):
        raise Refused(401, "the node's secret is wrong or was not given")


async def _read(request: Request, model: type[Model]) -> Model:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BODY:
            raise Refused(413, f"the body is larger than {_MOST_BODY // MEBIBYTE} MiB")
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused(422, f"{where}: {first['msg']}" if where else first["msg"]) from None
