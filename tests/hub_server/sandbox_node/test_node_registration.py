"""How a node stays known to its hub: over a hub of a few lines that can be away, forget, and disown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub_server.sandbox_node import registration
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.registration import HubAway, HubConnection, HubRefused
from hub_server.sandbox_node.specification import EndKind, Level
from hub_server.sandbox_node.wire import CreateSandbox, Event, Heartbeat, HeartbeatAnswer, NodeFacts, Registration
from tests.hub_server.sandbox_node.conftest import MakeNode
from tests.hub_server.sandbox_node.gateway.loopback import served

SECRET = "cd" * 32


class Hub:
    """What a hub answers, and what it heard."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.knows = False
        self.disowned: list[str] = []
        self.registrations: list[Registration] = []
        self.beats: list[Heartbeat] = []
        self.farewells = 0

    @property
    def events(self) -> list[Event]:
        return [event for beat in self.beats for event in beat.events]

    def app(self) -> Starlette:
        route = "/api/v1/sandbox-nodes"
        return Starlette(
            routes=[
                Route(route, self.register, methods=["POST"]),
                Route(f"{route}/n1/heartbeat", self.beat, methods=["POST"]),
                Route(f"{route}/n1", self.leave, methods=["DELETE"]),
            ]
        )

    async def register(self, request: Request) -> Response:
        if self.status != 200 or request.headers["authorization"] != "Bearer the-key":
            return JSONResponse({"detail": "no"}, status_code=self.status if self.status != 200 else 401)
        self.registrations.append(Registration.model_validate_json(await request.body()))
        self.knows = True
        return JSONResponse({"node_id": "n1"})

    async def beat(self, request: Request) -> Response:
        if self.status != 200:
            return JSONResponse({"detail": "away"}, status_code=self.status)
        if not self.knows:
            return JSONResponse({"detail": "register again"}, status_code=404)
        self.beats.append(Heartbeat.model_validate_json(await request.body()))
        return Response(HeartbeatAnswer(unknown=self.disowned).model_dump_json())

    async def leave(self, request: Request) -> Response:
        self.farewells += 1
        return JSONResponse({})


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """A hub on loopback; nodes look at it often."""
    monkeypatch.setattr(registration, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(registration, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(registration, "_LONGEST_PAUSE_S", 0.1)
    hub = Hub()
    async with served(hub.app()) as hub.url:
        yield hub


@pytest.fixture
async def node(make_node: MakeNode) -> Node:
    """A node of plain processes."""
    return await make_node()


def connection(hub: Hub, node: Node, key: str = "the-key") -> HubConnection:
    """Return the connection of a node to a hub."""

    def facts() -> NodeFacts:
        return NodeFacts(
            name="here", url="http://127.0.0.1:1", level=Level.NONE, backend="process", images=["host"], capacity=8,
            live=0, pending=0, idle=0, version="0",
        )  # fmt: skip

    return HubConnection(hub.url, key, node, SECRET, facts)


@pytest.fixture
async def connected(hub: Hub, node: Node) -> AsyncIterator[HubConnection]:
    """A node that the hub knows."""
    connected = connection(hub, node)
    connected.start()
    await until(lambda: bool(hub.beats))
    yield connected
    await connected.close()


async def until(true: Callable[[], bool], within_s: float = 10) -> None:
    """Return when something has become true."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


async def create(node: Node, sandbox_id: str) -> None:
    """Make a sandbox for somebody who does not wait for it."""
    await node.create(CreateSandbox(sandbox_id=sandbox_id, wait_s=0))
    await until(lambda: node.resident(sandbox_id).state == "running")


async def end(node: Node, sandbox_id: str) -> None:
    """Let a sandbox end by itself."""
    node.get(sandbox_id)._link.close()
    await until(lambda: node.resident(sandbox_id).state == "ended")


async def test_a_node_registers_with_its_secret_and_beats(hub: Hub, connected: HubConnection) -> None:
    assert hub.registrations[0].secret == SECRET
    assert hub.registrations[0].level == Level.NONE
    await until(lambda: len(hub.beats) >= 3)


async def test_events_reach_the_hub_at_once_and_once(hub: Hub, node: Node, connected: HubConnection) -> None:
    await create(node, "one")
    await until(lambda: len(hub.events) == 1, within_s=1)
    assert hub.events[0].facts.state == "running"
    await until(lambda: hub.beats[-1].sandboxes == {"one": "running"})
    await end(node, "one")
    await until(lambda: len(hub.events) == 2, within_s=1)
    told = hub.events[1].facts.end
    assert told is not None
    assert told.kind == EndKind.FAILED
    beats = len(hub.beats)
    await until(lambda: len(hub.beats) >= beats + 3)
    assert len(hub.events) == 2


async def test_sandboxes_live_on_while_the_hub_is_away_and_nothing_is_lost(
    hub: Hub, node: Node, connected: HubConnection
) -> None:
    hub.status = 503
    await create(node, "stays")
    await create(node, "goes")
    await end(node, "goes")
    await asyncio.sleep(0.3)
    assert hub.events == []
    assert node.resident("stays").state == "running"
    hub.status = 200
    await until(lambda: len(hub.events) == 3)
    assert [event.facts.sandbox_id for event in hub.events] == ["stays", "goes", "goes"]
    assert hub.beats[-1].sandboxes == {"stays": "running"}


async def test_a_hub_that_forgot_the_node_is_told_again(hub: Hub, node: Node, connected: HubConnection) -> None:
    await create(node, "one")
    await until(lambda: len(hub.events) == 1)
    hub.knows = False
    await until(lambda: len(hub.registrations) == 2)
    await until(lambda: hub.beats[-1].sandboxes == {"one": "running"})


async def test_what_the_hub_does_not_know_is_ended(hub: Hub, node: Node, connected: HubConnection) -> None:
    await create(node, "known")
    await create(node, "stray")
    hub.disowned = ["stray", "never-heard-of"]
    await until(lambda: node.resident("stray").state == "ended")
    assert node.resident("known").state == "running"


async def test_a_node_takes_leave(hub: Hub, node: Node) -> None:
    leaving = connection(hub, node)
    await leaving.register()
    await leaving.close()
    assert hub.farewells == 1


async def test_a_wrong_key_is_refused_with_the_reason(hub: Hub, node: Node) -> None:
    stranger = connection(hub, node, key="wrong")
    with pytest.raises(HubRefused, match="401"):
        await stranger.register()
    await stranger.close()


async def test_no_hub_at_all_is_away(hub: Hub, node: Node) -> None:
    hub.url = "http://127.0.0.1:9"
    lost = connection(hub, node)
    with pytest.raises(HubAway):
        await lost.register()
    await lost.close()
    hub.url = "http://no.such.host.invalid"
    lost = connection(hub, node)
    with pytest.raises(HubAway):
        await lost.register()
    await lost.close()


async def test_something_else_than_a_hub_is_told_apart(node: Node) -> None:
    async def answer(request: Request) -> Response:
        return JSONResponse({"hello": "world"})

    async with served(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as url:
        hub = Hub()
        hub.url = url
        wrong = connection(hub, node)
        with pytest.raises(HubRefused, match="does not answer as a hub"):
            await wrong.register()
        await wrong.close()
