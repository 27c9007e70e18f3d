"""The hub's side of a node's control API."""

from __future__ import annotations

import json
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError

from hub_server.errors import Conflict, Malformed, NotFound, Refusal, Unavailable
from hub_server.sandbox_node.wire import (
    CreateSandbox,
    Deleted,
    EgressFacts,
    EgressPolicy,
    ExposePort,
    Exposure,
    Ids,
    JobFacts,
    Jobs,
    Logs,
    NodeFacts,
    SandboxFacts,
)
from hub_server.sandboxes.connections import Address, Connections, NoAnswer
from hub_server.sandboxes.nodes import Reach

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  what is listened on, and where that is reached here
_REFUSALS: dict[int, type[Refusal]] = {400: Malformed, 404: NotFound, 409: Conflict, 422: Malformed}
Answer = TypeVar("Answer", bound=BaseModel)


class NodeSilent(Unavailable):
    """A node does not answer, or not as one."""


class NodeClient:
    """Talks to all nodes over connections that stay open; for one event loop."""

    def __init__(self) -> None:
        self._connections = Connections()

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    async def create(self, node: Reach, wanted: CreateSandbox) -> SandboxFacts:
        """Make a sandbox; it may be pending, or have ended, when this returns."""
        return await self._call(node, "POST", "/control/sandboxes", SandboxFacts, wanted, timeout_s=wanted.wait_s + 30)

    async def facts(self, node: Reach, sandbox_id: str) -> SandboxFacts:
        """Return what became of a sandbox."""
        return await self._call(node, "GET", f"/control/sandboxes/{sandbox_id}", SandboxFacts)

    async def delete(self, node: Reach, sandbox_ids: list[str]) -> Deleted:
        """End sandboxes; those that are not there are no mistake."""
        return await self._call(node, "POST", "/control/sandboxes:delete", Deleted, Ids(ids=sandbox_ids), timeout_s=60)

    async def logs(self, node: Reach, sandbox_id: str) -> str:
        """Return the last of what the start command of a sandbox wrote."""
        return (await self._call(node, "GET", f"/control/sandboxes/{sandbox_id}/logs", Logs)).logs

    async def egress(self, node: Reach, sandbox_id: str) -> EgressFacts:
        """Return whom a sandbox may reach."""
        return await self._call(node, "GET", f"/control/sandboxes/{sandbox_id}/egress", EgressFacts)

    async def set_egress(self, node: Reach, sandbox_id: str, policy: EgressPolicy) -> EgressFacts:
        """Change whom a sandbox may reach."""
        return await self._call(node, "PUT", f"/control/sandboxes/{sandbox_id}/egress", EgressFacts, policy)

    async def expose(self, node: Reach, sandbox_id: str, port: ExposePort) -> Exposure:
        """Let a port inside be reached by URL."""
        return await self._call(node, "POST", f"/control/sandboxes/{sandbox_id}/exposures", Exposure, port)

    async def unexpose(self, node: Reach, sandbox_id: str, exposure_id: str) -> None:
        """End that."""
        await self._send(node, "DELETE", f"/control/sandboxes/{sandbox_id}/exposures/{exposure_id}", None, 30)

    async def is_there(self, node: Reach) -> bool:
        """Say whether a node answers at its address."""
        try:
            await self._call(node, "GET", "/control/node", NodeFacts, timeout_s=2)
        except Refusal:
            return False
        return True

    async def jobs(self, node: Reach, jobs: Jobs) -> JobFacts:
        """Return how background jobs stand."""
        return await self._call(node, "POST", "/control/background-jobs", JobFacts, jobs, timeout_s=60)

    async def _call(
        self,
        node: Reach,
        method: str,
        path: str,
        answered: type[Answer],
        sent: BaseModel | None = None,
        timeout_s: float = 30,
    ) -> Answer:
        body = await self._send(node, method, path, sent, timeout_s)
        try:
            return answered.model_validate_json(body)
        except ValidationError:
            raise NodeSilent(f"the sandbox node {node.name} does not answer as one") from None

    async def _send(self, node: Reach, method: str, path: str, sent: BaseModel | None, timeout_s: float) -> bytes:
        """Send a request.

        Raises:
            NodeSilent: there is no answer, or none of a node.
            Refusal: the node refuses; with its words.
        """
        body = sent.model_dump_json().encode() if sent is not None else b""
        address = Address.of(reachable(node.url, None))
        try:
            answered = await self._connections.send(
                address, method, path, bearer=node.secret, body=body, timeout_s=timeout_s
            )
        except NoAnswer as error:
            raise NodeSilent(f"the sandbox node {node.name} does not answer: {error}") from None
        if 200 <= answered.status < 300:
            return answered.body
        detail = _detail(answered.body)
        refusal = _REFUSALS.get(answered.status)
        if refusal is None:
            raise NodeSilent(f"the sandbox node {node.name} answers with {answered.status}: {detail}")
        raise refusal(detail)


def reachable(url: str, host: str | None) -> str:
    """Return a node's address with a host that can be called.

    A node that listens on all addresses of the hub's machine is reached by clients under the name by which they reach
    the hub (`host`), and by the hub on the machine itself (None).
    """
    parts = urlsplit(url)
    if parts.hostname not in _ANYWHERE:
        return url
    called = host if host is not None else _ANYWHERE[parts.hostname]
    called = f"[{called}]" if ":" in called and not called.startswith("[") else called
    port = f":{parts.port}" if parts.port is not None else ""
    return urlunsplit(parts._replace(netloc=f"{called}{port}"))


def _detail(body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return body[:200].decode(errors="replace")
    hint = said.get("hint")
    return f"{said.get('detail', '')}" + (f"; {hint}" if hint else "")
