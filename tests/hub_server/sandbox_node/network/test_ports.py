"""Exposed ports: requests and WebSockets from outside to servers in a sandbox, over real HTTP."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
import websockets

from hub_server.sandbox_node.network.exposures import MOST_OF_ONE_SANDBOX, Exposure, Exposures, TooManyExposures
from hub_server.sandbox_node.network.port_headers import Place
from hub_server.sandbox_node.network.ports import ExposedPorts
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command, End, EndKind
from tests.hub_server.sandbox_node.gateway import loopback

# What runs in the sandbox: it tells what it got, and has one path for each thing that a server may do.
SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        size = int(self.headers.get("content-length", 0))
        if self.headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size); self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(size)
        if self.path == "/redirect":
            self.send_response(302); self.send_header("Location", "/elsewhere?x")
            self.send_header("Content-Length", "0"); self.end_headers(); return
        if self.path == "/stream":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for _ in range(2):
                self.wfile.write(b"4\\r\\npart\\r\\n"); time.sleep(float(self.headers.get("x-pause", 0)))
            self.wfile.write(b"0\\r\\n\\r\\n"); return
        if self.path == "/cut":
            self.send_response(200); self.send_header("Content-Length", "100"); self.end_headers()
            self.wfile.write(b"half"); self.close_connection = True; return
        if self.path == "/endless":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            try:
                while True:
                    self.wfile.write(b"1\\r\\nx\\r\\n"); time.sleep(0.01)
            except OSError:
                print("the client has gone", flush=True)
            return
        if self.path == "/nonsense":
            self.wfile.write(b"SSH-2.0\\r\\n\\r\\n"); self.close_connection = True; return
        told = json.dumps({"method": self.command, "path": self.path, "body": body.decode(),
                           "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(told)))
        self.send_header("Set-Cookie", "session=1; Path=/; Domain=example.com; HttpOnly")
        self.send_header("Strict-Transport-Security", "max-age=1")
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("X-Own", "kept")
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(told)
    do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_GET

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
SOCKETS = """
from websockets.sync.server import serve

def talk(socket):
    socket.send(" ".join(["hello from", socket.request.path, socket.request.headers["Host"], socket.subprotocol]))
    for message in socket:
        if message == "bye": socket.close(4001, "so long"); return
        socket.send(message)

with serve(talk, "127.0.0.1", 0, subprotocols=["chat"], max_size=None) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
"""


@dataclass
class Node:
    """An app with exposed ports over real HTTP, and a sandbox."""

    url: str
    exposures: Exposures
    sandbox: Sandbox
    printed: AsyncIterator[str]
    exposure: Exposure

    @property
    def base(self) -> str:
        return self.url + self.exposure.path()


async def serve_inside(sandbox: Sandbox, program: str) -> tuple[int, AsyncIterator[str]]:
    """Start a server in the sandbox, and return its port and what it prints."""
    session = await sandbox.start(Command([sys.executable, "-u", "-c", program]))

    async def printed() -> AsyncIterator[str]:
        async for event in session.events():
            if text := getattr(event, "data", b"").decode().strip():
                yield text

    lines = printed()
    return int(await anext(lines)), lines


@pytest.fixture
async def server_url() -> AsyncIterator[tuple[str, Exposures]]:
    exposures = Exposures()
    async with loopback.served(ExposedPorts(exposures)) as url:
        yield url, exposures


@pytest.fixture
def sandbox(plain_sandbox: Sandbox) -> Sandbox:
    return plain_sandbox


@pytest.fixture
async def node(server_url: tuple[str, Exposures], sandbox: Sandbox) -> Node:
    url, exposures = server_url
    port, printed = await serve_inside(sandbox, SERVER)
    return Node(url, exposures, sandbox, printed, exposures.add(sandbox, port, "web"))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=10) as made:
        yield made


async def test_any_request_goes_to_the_port_and_its_answer_comes_back(node: Node, client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"two "
        yield b"parts"

    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        answer = await client.request(method, node.base + "a%2Fb/c?d=%20e", content=b"body" if method != "GET" else b"")
        assert answer.status_code == 201
        assert answer.json()["method"] == method
        assert answer.json()["path"] == "/a%2Fb/c?d=%20e"
        assert answer.json()["body"] == ("body" if method != "GET" else "")
    assert (await client.post(node.base, content=chunks())).json()["body"] == "two parts"
    assert (await client.head(node.base)).status_code == 201
    assert answer.headers["x-own"] == "kept"


async def test_the_sandbox_sees_itself_on_localhost_and_nothing_of_the_way(
    node: Node, client: httpx.AsyncClient
) -> None:
    fields = {
        "authorization": "Bearer of-the-app", "x-forwarded-for": "1.2.3.4", "x-forwarded-host": "secret.internal",
        "via": "proxy", "forwarded": "for=1.2.3.4", "x-real-ip": "1.2.3.4", "connection": "x-hop", "x-hop": "1",
        "origin": node.url, "referer": node.base + "page", "x-mine": "2",
    }  # fmt: skip
    seen = (await client.get(node.base, headers=fields)).json()["headers"]
    port = node.exposure.port
    assert seen["host"] == f"localhost:{port}"
    assert seen["origin"] == f"http://localhost:{port}"
    assert seen["referer"] == f"http://localhost:{port}/page"
    assert seen["authorization"] == "Bearer of-the-app"
    assert seen["x-mine"] == "2"
    assert not any(
        name in seen for name in ("x-forwarded-for", "x-forwarded-host", "via", "forwarded", "x-real-ip", "x-hop")
    )
    foreign = (
        await client.get(node.base, headers={"origin": "http://evil.test", "referer": "http://evil.test/x"})
    ).json()
    assert foreign["headers"]["origin"] == "http://evil.test"
    assert "referer" not in foreign["headers"]


async def test_a_sandbox_gets_its_own_cookies_only_and_sets_nothing_for_the_whole_origin(
    node: Node, client: httpx.AsyncClient
) -> None:
    answer = await client.get(node.base)
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(rf"at\w{{16}}-session=1; HttpOnly; Path={node.exposure.path()}", cookie)
    assert "strict-transport-security" not in answer.headers
    assert "service-worker-allowed" not in answer.headers
    pair = cookie.partition(";")[0]
    seen = (await client.get(node.base, headers={"cookie": f"hub_session=secret; {pair}; other=3"})).json()["headers"]
    assert seen["cookie"] == "session=1"
    client.cookies.clear()
    seen = (await client.get(node.base, headers={"cookie": "hub_session=secret"})).json()["headers"]
    assert "cookie" not in seen


async def test_redirects_stay_below_the_path_of_the_port(node: Node, client: httpx.AsyncClient) -> None:
    answer = await client.get(node.base + "redirect")
    assert answer.headers["location"] == node.exposure.path() + "elsewhere?x"
    answer = await client.get(node.base.rstrip("/"))
    assert (answer.status_code, answer.headers["location"]) == (307, node.exposure.path())


async def test_answers_are_streamed(node: Node, client: httpx.AsyncClient) -> None:
    parts = []
    async with client.stream("GET", node.base + "stream", headers={"x-pause": "0.3"}) as answer:
        async for part in answer.aiter_raw():
            parts.append((part, asyncio.get_running_loop().time()))
    assert b"".join(part for part, _ in parts) == b"partpart"
    assert parts[-1][1] - parts[0][1] > 0.1


async def test_a_client_that_goes_away_ends_the_request_inside(node: Node, client: httpx.AsyncClient) -> None:
    async with client.stream("GET", node.base + "endless") as answer:
        async for _ in answer.aiter_raw():
            break
    assert await asyncio.wait_for(anext(node.printed), 5) == "the client has gone"


async def test_what_the_port_does_wrong_is_told(node: Node, client: httpx.AsyncClient) -> None:
    answer = await client.get(node.base + "nonsense")
    assert answer.status_code == 502
    assert "no proper HTTP answer" in answer.text
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(node.base + "cut")
    silent = node.exposures.add(node.sandbox, 1)
    answer = await client.get(node.url + silent.path())
    assert (answer.status_code, answer.text) == (502, "nothing in the sandbox answers on port 1\n")


async def test_only_the_url_of_an_exposure_leads_to_a_port_and_only_while_it_lasts(
    node: Node, client: httpx.AsyncClient
) -> None:
    assert (await client.get(f"{node.url}/exposed/{'0' * 32}/")).status_code == 404
    assert (await client.get(f"{node.url}/exposed/")).status_code == 404
    assert len(node.exposure.id) == 32
    with pytest.raises(KeyError):
        node.exposures.remove("another", node.exposure.id)
    node.exposures.remove("plain", node.exposure.id)
    assert (await client.get(node.base)).status_code == 404
    assert node.sandbox.exposed == set()


async def test_exposures_are_listed_bounded_and_end_with_their_sandbox(sandbox: Sandbox) -> None:
    exposures = Exposures()
    made = [exposures.add(sandbox, 8000 + number) for number in range(MOST_OF_ONE_SANDBOX)]
    assert exposures.of("plain") == made
    assert sandbox.exposed == {exposure.port for exposure in made}
    with pytest.raises(TooManyExposures):
        exposures.add(sandbox, 9000)
    await sandbox.destroy(End(EndKind.DELETED, "gone"))
    await asyncio.sleep(0)
    assert exposures.of("plain") == []
    assert exposures.find(made[0].id) is None


async def test_a_sandbox_that_ends_under_a_request_is_told(node: Node, client: httpx.AsyncClient) -> None:
    found = node.exposures.find(node.exposure.id)
    await node.sandbox.destroy(End(EndKind.DELETED, "gone"))
    node.exposures._exposed[node.exposure.id] = found  # as if the request had come just before
    assert (await client.get(node.base)).status_code == 410


async def test_websockets_carry_messages_both_ways_and_how_they_close(
    server_url: tuple[str, Exposures], sandbox: Sandbox
) -> None:
    url, exposures = server_url
    port, _ = await serve_inside(sandbox, SOCKETS)
    base = url.replace("http:", "ws:") + exposures.add(sandbox, port).path()
    async with websockets.connect(base + "room?x=1", subprotocols=["chat"], max_size=None) as socket:
        assert await socket.recv() == f"hello from /room?x=1 localhost:{port} chat"
        for message in ("text ü", b"\0bytes", b"x" * 1_000_000):
            await socket.send(message)
            assert await socket.recv() == message
        await socket.send("bye")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "so long")


async def test_a_websocket_that_nobody_takes_is_refused(node: Node) -> None:
    base = node.base.replace("http:", "ws:")
    for path in (base, node.url.replace("http:", "ws:") + "/exposed/nothing/"):
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(path)


def test_a_token_that_was_for_the_node_stays_there() -> None:
    place = Place(b"http://node", b"/sandboxes/s1/ports/80/", 80, authorized=True)
    assert place.request_headers([(b"authorization", b"Bearer secret"), (b"x", b"1")]) == [(b"x", b"1")]
