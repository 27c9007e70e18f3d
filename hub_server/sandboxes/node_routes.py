"""Routes of the nodes themselves, and of the administrators who look after them."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, BackgroundTasks
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select

from hub_server.errors import Conflict
from hub_server.operation import logs
from hub_server.sandbox_node.wire import Heartbeat, HeartbeatAnswer, Registered, Registration
from hub_server.sandboxes import answers, nodes
from hub_server.sandboxes.tables import SandboxNode
from hub_server.services import HubServices, Services

router = APIRouter(prefix="/api/v1/sandbox-nodes", tags=["sandboxes"])


@router.get("")
def list_nodes(services: HubServices) -> dict[str, Any]:
    """List the machines that run sandboxes, with those that left."""
    with services.database.read() as session:
        live = nodes.live_counts(session)
        found = session.scalars(select(SandboxNode).order_by(SandboxNode.name))
        return {"nodes": [answers.node_facts(node, live.get(node.id, 0)) for node in found]}


@router.post("")
async def register_node(body: Registration, services: HubServices) -> Registered:
    """Take a node in; under a name that is known, what was said of it is replaced, unless that one lives elsewhere."""
    other = await run_in_threadpool(_elsewhere, services, body)
    if other is not None and await services.fleet.client.is_there(other):
        raise Conflict(f"a sandbox node named {body.name!r} runs at {other.url}; give this one another name (--name)")
    return await run_in_threadpool(_register, services, body)


@router.post("/{node_id}/heartbeat")
async def node_heartbeat(
    node_id: str, body: Heartbeat, services: HubServices, afterwards: BackgroundTasks
) -> HeartbeatAnswer:
    """Take a node's sign of life with what happened there, and say which of its sandboxes nobody wants."""
    fleet = services.fleet
    take = partial(nodes.take_heartbeat, services.database, services.vault, fleet.strays, node_id, body, fleet.least)
    told = await to_thread.run_sync(take, limiter=fleet.for_heartbeats)
    if told.in_doubt:
        afterwards.add_task(fleet.settle, told.in_doubt, node_id)
    return HeartbeatAnswer(unknown=told.unknown)


@router.delete("/{node_id}")
def unregister_node(node_id: str, services: HubServices) -> dict[str, Any]:
    """Let a node go; its sandboxes end with it."""
    with services.database.write() as session:
        node = nodes.unregister(session, node_id)
    services.fleet.forget_offers()
    logs.log(logging.INFO, "a sandbox node left", node=node.name)
    return {"success": True}


def _elsewhere(services: Services, body: Registration) -> nodes.Reach | None:
    with services.database.read() as session:
        return nodes.node_elsewhere(session, services.vault, body)


def _register(services: Services, body: Registration) -> Registered:
    with services.database.write() as session:
        node = nodes.register(session, services.vault, body, services.fleet.least)
    services.fleet.forget_offers()
    logs.log(
        logging.INFO, "a sandbox node registered", node=node.name, url=node.url, gives=node.level, backend=node.backend
    )
    return Registered(node_id=node.id)
