"""The API by which a hub drives a node, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hub_server.sandbox_node.control import control_routes
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.specification import Command, Level
from hub_server.sandbox_node.wire import NodeFacts
from tests.hub_server.sandbox_node.conftest import MakeNode
from tests.hub_server.sandbox_node.gateway import loopback

SECRET = "ab" * 32


@contextlib.asynccontextmanager
async def served(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the control API of a node, and yield a client that knows its secret."""

    def facts() -> NodeFacts:
        counts = node.counts
        return NodeFacts(
            name="here", url="http://127.0.0.1:1", level=Level.NONE, backend="process", images=["host"], capacity=8,
            live=counts.used, pending=counts.waiting, idle=counts.idle, version="0",
        )  # fmt: skip

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with (
        loopback.served(Starlette(routes=[*control_routes(node, SECRET, facts)])) as url,
        httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as client,
    ):
        yield client


@pytest.fixture
async def api(make_node: MakeNode) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a node's control API."""
    async with served(await make_node()) as client:
        yield client


async def create(api: httpx.AsyncClient, sandbox_id: str = "one", **asked: object) -> httpx.Response:
    """Ask for a sandbox."""
    return await api.post("/control/sandboxes", json={"sandbox_id": sandbox_id, "wait_s": 20, **asked})


async def test_a_hub_creates_looks_at_and_deletes_a_sandbox(api: httpx.AsyncClient) -> None:
    created = await create(api)
    assert created.status_code == 200
    assert created.json()["state"] == "running"
    assert created.json()["enforcement"]["level"] == "none"
    assert (await api.get("/control/node")).json()["live"] == 1
    assert (await api.get("/control/sandboxes/one")).json()["state"] == "running"
    deleted = (await api.delete("/control/sandboxes/one")).json()
    assert deleted["end"]["kind"] == "DELETED"
    assert (await api.get("/control/sandboxes/one")).json()["state"] == "ended"
    assert (await api.get("/control/node")).json()["live"] == 0


async def test_nobody_gets_in_without_the_secret(api: httpx.AsyncClient) -> None:
    routes = [
        ("GET", "/control/node"),
        ("POST", "/control/sandboxes"),
        ("GET", "/control/sandboxes/one"),
        ("DELETE", "/control/sandboxes/one"),
        ("POST", "/control/sandboxes:delete"),
        ("GET", "/control/sandboxes/one/logs"),
        ("POST", "/control/background-jobs"),
    ]
    for method, path in routes:
        for authorization in ["", "Bearer", "Bearer wrong", f"Basic {SECRET}", "Bearer \u00e9"]:
            headers = [(b"authorization", authorization.encode("latin-1"))]
            refused = await api.request(method, path, headers=headers, json={})
            assert refused.status_code == 401, (method, path, authorization)


async def test_what_is_not_there_is_not_found(api: httpx.AsyncClient) -> None:
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/logs")]:
        assert (await api.request(method, f"/control/sandboxes/nobody{path}")).status_code == 404


@pytest.mark.parametrize(
    ("body", "about"),
    [
        (b"not json", "JSON"),
        (b"{}", "sandbox_id"),
        (b'{"sandbox_id": "../etc"}', "sandbox_id"),
        (b'{"sandbox_id": "a", "limits": {"memory_bytes": 0}}', "memory_bytes"),
        (b'{"sandbox_id": "a", "lifetime_s": -1}', "lifetime_s"),
        (b'{"sandbox_id": "a", "min_level": "unbreakable"}', "min_level"),
        (b'{"sandbox_id": "a", "min_level": "container"}', "container"),
        (b"[]", "object"),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_in_one_line(api: httpx.AsyncClient, body: bytes, about: str) -> None:
    refused = await api.post("/control/sandboxes", content=body)
    assert refused.status_code == 422
    assert about in refused.json()["detail"]
    assert "\n" not in refused.json()["detail"]


async def test_a_body_without_end_is_cut_off(api: httpx.AsyncClient) -> None:
    refused = await api.post("/control/sandboxes", content=b" " * (5 * 1024**2))
    assert refused.status_code == 413


async def test_many_are_deleted_at_once_and_the_missing_are_named(api: httpx.AsyncClient) -> None:
    await asyncio.gather(*(create(api, f"s{number}") for number in range(4)))
    answer = await api.post("/control/sandboxes:delete", json={"ids": ["s0", "s1", "nobody", "s1"]})
    assert answer.json() == {"deleted": ["s0", "s1"], "not_there": ["nobody"]}
    assert (await api.get("/control/node")).json()["live"] == 2


async def test_logs_are_what_the_start_command_wrote(api: httpx.AsyncClient) -> None:
    await create(api, start_command="echo hello", vm=True)
    async with asyncio.timeout(10):
        while not (logs := (await api.get("/control/sandboxes/one/logs")).json()["logs"]):
            await asyncio.sleep(0.02)
    assert logs == "hello\n"


async def test_background_jobs_are_told_from_their_files(make_node: MakeNode) -> None:
    node = await make_node()
    async with served(node) as api:
        await create(api)
        await create(api, "gone")
        await api.delete("/control/sandboxes/gone")
        sandbox = node.get("one")
        done, running, lost, empty = "0000aaaa", "0000bbbb", "0000cccc", "0000dddd"
        script = f"""
            cd /tmp; rm -rf job_0000*; mkdir job_{running}.launch
            echo 3 > job_{done}.exit
            : > job_{empty}.exit
            nohup sh -c 'sleep 30; echo 0 > /tmp/job_{running}.exit' > /dev/null 2>&1 &
            echo $! > job_{running}.launch/pid
        """
        assert (await sandbox.run(Command(["/bin/sh", "-c", script]))).exit_code == 0
        jobs = [
            ("one", done),
            ("one", running),
            ("one", lost),
            ("one", empty),
            ("gone", done),
            ("no", done),
            ("one", "/"),
        ]
        answer = await api.post(
            "/control/background-jobs", json={"jobs": [{"sandbox_id": s, "job_id": j} for s, j in jobs]}
        )
        said = [(job["completed"], job["exit_code"], job["error"]) for job in answer.json()["jobs"]]
        assert said == [
            (True, 3, None),
            (False, None, None),
            (False, None, "RUNTIME_ERROR"),
            (False, None, "RUNTIME_ERROR"),
            (False, None, "NOT_RUNNING"),
            (False, None, "NOT_FOUND"),
            (False, None, "NOT_FOUND"),
        ]
        await sandbox.run(Command(["/bin/sh", "-c", "rm -rf /tmp/job_0000*"]))


async def test_a_burst_of_creations_loses_none(make_node: MakeNode) -> None:
    node = await make_node(most_sandboxes=6)
    async with served(node) as api:

        async def live(number: int) -> str:
            name = f"s{number}"
            facts = (await create(api, name, wait_s=0)).json()
            while facts["state"] == "pending":
                await asyncio.sleep(0.1)
                facts = (await api.get(f"/control/sandboxes/{name}")).json()
            await api.delete(f"/control/sandboxes/{name}")
            return str(facts["state"])

        states = await asyncio.gather(*(live(number) for number in range(40)))
    assert set(states) == {"running"}


FETCH = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.stdin.read(), timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


async def test_whom_a_sandbox_may_reach_is_set_and_changed_while_it_runs(make_node: MakeNode) -> None:
    async def origin(request: Request) -> Response:
        return PlainTextResponse("reached")

    node = await make_node(private="127.0.0.1")
    async with served(node) as api, loopback.served(Starlette(routes=[Route("/", origin)])) as url:
        target = url.removeprefix("http://")
        await create(api, egress={"allowlist": [target]})
        await create(api, "alone")

        async def reached() -> str:
            # Through the variables that lead to the proxy: these sandboxes are plain processes.
            sandbox = node.get("one")
            env = {"NO_PROXY": "", "no_proxy": ""}
            return (await sandbox.run_python(FETCH, stdin=url.encode(), env=env)).stdout.decode().strip()

        assert await reached() == "reached"
        assert "HTTP_PROXY" not in node.get("alone").environment
        path = "/control/sandboxes/one/egress"
        assert (await api.get(path)).json()["policy"] == {"allowlist": [target], "denylist": None}
        closed = await api.put(path, json={"allowlist": [], "denylist": None})
        assert closed.json() == {
            "policy": {"allowlist": [], "denylist": None}, "generation": 2, "applied_generation": 2
        }  # fmt: skip
        assert await reached() == "403"
        await api.put(path, json={"allowlist": None, "denylist": []})
        assert await reached() == "reached"
        refused = await api.put(path, json={"allowlist": ["http://no"], "denylist": None})
        assert refused.status_code == 422
        assert (await create(api, "two", egress={"allowlist": [], "denylist": []})).status_code == 422
        await api.delete("/control/sandboxes/one")
        assert (await api.put(path, json={"allowlist": []})).status_code == 409
