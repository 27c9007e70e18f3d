"""Ports and egress of a whole node, over its own routes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
import websockets

from hub_server.sandbox_node.app import create_node_app
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.specification import Command, Level
from hub_server.sandbox_node.wire import NodeFacts
from hub_server.sandboxes.tokens import make_token
from tests.hub_server.sandbox_node.conftest import MakeNode
from tests.hub_server.sandbox_node.gateway import loopback

SECRET = "ab" * 32
HELLO = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['authorization']}".encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class Served:
    """A node over HTTP, with a sandbox `one` that serves on a port."""

    node: Node
    url: str
    port: int
    client: httpx.AsyncClient

    @property
    def ports(self) -> str:
        return f"{self.url}/sandboxes/one/ports"


@pytest.fixture
async def served(make_node: MakeNode) -> AsyncIterator[Served]:
    node = await make_node()

    def facts() -> NodeFacts:
        return NodeFacts(
            name="here", url="https://sandboxes.example", level=Level.NONE, backend="process", images=["host"],
            capacity=8, live=0, pending=0, idle=0, version="0",
        )  # fmt: skip

    async with (
        loopback.served(create_node_app(node, SECRET, facts)) as url,
        httpx.AsyncClient(timeout=30, trust_env=False) as client,
    ):
        headers = {"authorization": f"Bearer {SECRET}"}
        await client.post(url + "/control/sandboxes", json={"sandbox_id": "one", "wait_s": 20}, headers=headers)
        session = await node.get("one").start(Command([sys.executable, "-u", "-c", HELLO]))
        async for event in session.events():
            yield Served(node, url, int(event.data), client)
            break


def secret() -> dict[str, str]:
    return {"authorization": f"Bearer {SECRET}"}


def token(sandbox_id: str = "one") -> dict[str, str]:
    return {"authorization": f"Bearer {make_token(bytes.fromhex(SECRET), sandbox_id).text}"}


async def test_a_hub_exposes_lists_and_unexposes_ports(served: Served) -> None:
    exposures = served.url + "/control/sandboxes/one/exposures"
    made = (await served.client.post(exposures, json={"port": served.port, "name": "web"}, headers=secret())).json()
    assert made["url"] == f"https://sandboxes.example/exposed/{made['exposure_id']}/"
    assert (made["sandbox_id"], made["port"], made["name"]) == ("one", served.port, "web")
    assert (await served.client.get(exposures, headers=secret())).json() == {"exposures": [made]}
    inside = f"{served.url}/exposed/{made['exposure_id']}/page"
    assert (await served.client.get(inside)).text == "/page None"
    assert (await served.client.delete(f"{exposures}/{made['exposure_id']}", headers=secret())).status_code == 204
    assert (await served.client.get(inside)).status_code == 404
    assert (await served.client.delete(f"{exposures}/{made['exposure_id']}", headers=secret())).status_code == 404
    assert (await served.client.post(exposures, json={"port": 0}, headers=secret())).status_code == 422
    for method in ("GET", "POST"):
        assert (await served.client.request(method, exposures, json={"port": 1})).status_code == 401


async def test_who_has_the_token_reaches_any_port_and_the_sandbox_does_not_see_it(served: Served) -> None:
    answer = await served.client.get(f"{served.ports}/{served.port}/page?x=1", headers=token())
    assert (answer.status_code, answer.text) == (200, "/page?x=1 None")
    assert (await served.client.get(f"{served.ports}/{served.port}", headers=token())).text == "/ None"
    assert (await served.client.get(f"{served.ports}/1/", headers=token())).status_code == 502
    for port in ("0", "65536", "x", "", "٣"):
        assert (await served.client.get(f"{served.ports}/{port}/", headers=token())).status_code == 422


async def test_without_its_token_no_port_is_reached_and_no_websocket(served: Served) -> None:
    url = f"{served.ports}/{served.port}/"
    assert (await served.client.get(url)).status_code == 401
    assert (await served.client.get(url, headers=secret())).status_code == 401
    assert (await served.client.get(url, headers=token("another"))).status_code == 403
    for path, headers in (
        (url, {}), (url, token("another")), (served.url + "/control/node", secret()), (served.url + "/", token()),
        (served.url + "/sandboxes/one/exec", token()),
    ):  # fmt: skip
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(path.replace("http:", "ws:"), additional_headers=headers)
        assert refused.value.response.status_code == 403


async def test_a_hub_changes_whom_a_sandbox_may_reach(served: Served) -> None:
    egress = served.url + "/control/sandboxes/one/egress"
    assert (await served.client.get(egress, headers=secret())).json()["policy"] == {"allowlist": None, "denylist": None}
    allowed = {"allowlist": ["pypi.org"], "denylist": None}
    changed = (await served.client.put(egress, json=allowed, headers=secret())).json()
    assert changed["policy"] == allowed
    assert changed["generation"] == changed["applied_generation"] == 2
    refused = await served.client.put(egress, json={"allowlist": ["http://x"], "denylist": None}, headers=secret())
    assert refused.status_code == 422
    assert "schemes are not supported" in refused.json()["detail"]
