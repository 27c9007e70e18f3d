"""A sandbox node of a few lines, for tests of the hub's own rules: it says what a node says, and runs nothing."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.running_hub import RunningHub, answer

LIMITS = {"cpu_cores": 1.0, "memory_bytes": 2**30, "disk_bytes": 5 * 2**30}
ENFORCEMENT = {"level": "container", "backend": "fake", "limits": LIMITS, "held": {"memory_bytes": "enforced"}}


@dataclass
class FakeNode:
    """What the node has and was asked. With `is_full` new sandboxes are pending; `images` are all that it can make."""

    name: str
    url: str = ""
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    images: list[str] = field(default_factory=lambda: ["host:latest"])
    level: str = "container"
    capacity: int = 100
    is_full: bool = False
    is_silent: bool = False
    node_id: str = ""
    sandboxes: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    logs: str = "line one\n"

    def facts(self, **changes: Any) -> dict[str, Any]:
        """Return what it says about itself."""
        live = sum(one["state"] != "ended" for one in self.sandboxes.values())
        return {
            "name": self.name, "url": self.url, "level": self.level, "backend": "fake", "images": self.images,
            "capacity": self.capacity, "live": live, "pending": 0, "idle": 0, "version": "1", **changes,
        }  # fmt: skip

    def register(self, hub: RunningHub, **changes: Any) -> None:
        """Offer itself to a hub."""
        with hub.client(hub.admin_key) as admin:
            body = {**self.facts(), "secret": self.secret, **changes}
            self.node_id = answer(admin.post("/sandbox-nodes", json=body))["node_id"]

    def leave(self, hub: RunningHub) -> None:
        """Take leave of the hub; again is no mistake."""
        with hub.client(hub.admin_key) as admin:
            admin.delete(f"/sandbox-nodes/{self.node_id}")

    def beat(self, hub: RunningHub, *events: str, **changes: Any) -> dict[str, Any]:
        """Send a heartbeat with these sandboxes as news."""
        alive = {name: one["state"] for name, one in self.sandboxes.items() if one["state"] != "ended"}
        news = [{"facts": self.sandboxes[name], "at": time.time()} for name in events]
        body = {"node": self.facts(**changes), "sandboxes": alive, "events": news}
        with hub.client(hub.admin_key) as admin:
            return answer(admin.post(f"/sandbox-nodes/{self.node_id}/heartbeat", json=body))

    def run(self, sandbox_id: str) -> None:
        """Let a pending sandbox run."""
        self.sandboxes[sandbox_id] |= {"state": "running", "started_at": time.time(), "enforcement": ENFORCEMENT}

    def finish(self, sandbox_id: str, kind: str, message: str, exit_code: int | None = None) -> None:
        """Let a sandbox end."""
        end = {"kind": kind, "message": message, "exit_code": exit_code}
        self.sandboxes[sandbox_id] |= {"state": "ended", "ended_at": time.time(), "end": end}

    async def about(self, request: Request) -> Response:
        """Say what it is."""
        return JSONResponse(self.facts())

    async def create(self, request: Request) -> Response:
        """Make a sandbox, or say why not."""
        wanted = await request.json()
        self.asked.append(wanted)
        name = wanted["sandbox_id"]
        self.sandboxes[name] = {"sandbox_id": name, "state": "pending", "exposures": [], "egress": wanted["egress"]}
        if wanted["limits"]["cpu_cores"] > 64:
            return JSONResponse({"detail": "this node has 2 cores", "hint": "ask for fewer"}, status_code=422)
        if wanted["image"] not in [*self.images, *(image.partition(":")[0] for image in self.images)]:
            self.finish(name, "IMAGE_PULL_FAILED", f"no image {wanted['image']} in the store")
        elif not self.is_full:
            self.run(name)
        return JSONResponse(self.sandboxes[name])

    async def one(self, request: Request) -> Response:
        """Answer about one sandbox."""
        known = self.sandboxes.get(request.path_params["sandbox_id"])
        if known is None:
            return JSONResponse({"detail": "no such sandbox"}, status_code=404)
        if request.url.path.endswith("/logs"):
            return JSONResponse({"logs": self.logs})
        if request.url.path.endswith("/egress"):
            if request.method == "PUT":
                known["egress"] = await request.json()
                known["generation"] = known.get("generation", 1) + 1
            policy = known["egress"] or {"allowlist": [], "denylist": None}
            now = known.get("generation", 1)
            return JSONResponse({"policy": policy, "generation": now, "applied_generation": now})
        if request.url.path.endswith("/exposures"):
            port = await request.json()
            number = f"e{len(known['exposures']) + 1}"
            exposure = {
                "exposure_id": number, "sandbox_id": known["sandbox_id"], "url": f"{self.url}/ports/{number}/",
                "created_at": time.time(), **port,
            }  # fmt: skip
            known["exposures"].append(exposure)
            return JSONResponse(exposure)
        if "/exposures/" in request.url.path:
            return Response(status_code=204)
        return JSONResponse(known)

    async def delete(self, request: Request) -> Response:
        """End sandboxes."""
        ids = (await request.json())["ids"]
        for name in ids:
            if name in self.sandboxes:
                self.finish(name, "DELETED", "it was deleted")
        there = [name for name in ids if name in self.sandboxes]
        return JSONResponse({"deleted": there, "not_there": [name for name in ids if name not in there]})

    async def jobs(self, request: Request) -> Response:
        """Say of every job that it has ended well, but of one."""
        jobs = (await request.json())["jobs"]
        lost = {"error": "NOT_FOUND", "message": "no such job"}
        return JSONResponse(
            {
                "jobs": [
                    {**job, **(lost if job["job_id"] == "0" * 8 else {"completed": True, "exit_code": 0})}
                    for job in jobs
                ]
            }
        )

    def app(self) -> Starlette:
        """Return its control API."""
        one = "/control/sandboxes/{sandbox_id}"
        routes = [
            Route("/control/node", self.about, methods=["GET"]),
            Route("/control/sandboxes", self.create, methods=["POST"]),
            Route("/control/sandboxes:delete", self.delete, methods=["POST"]),
            Route("/control/background-jobs", self.jobs, methods=["POST"]),
            *(Route(one + rest, self.one, methods=["GET", "PUT", "POST", "DELETE"])
              for rest in ("", "/logs", "/egress", "/exposures", "/exposures/{exposure_id}")),
        ]  # fmt: skip

        async def guard(request: Request, go_on: Any) -> Response:
            if self.is_silent:
                return Response("<html>nothing here</html>", status_code=502)
            if request.headers.get("authorization") != f"Bearer {self.secret}":
                return JSONResponse({"detail": "wrong secret"}, status_code=401)
            answered: Response = await go_on(request)
            return answered

        return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])


@contextlib.contextmanager
def fake_node(name: str = "a-node", **facts: Any) -> Iterator[FakeNode]:
    """Run a node on loopback for the time of the block."""
    node = FakeNode(name, **facts)
    listener = socket.create_server(("127.0.0.1", 0))
    node.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(node.app(), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield node
    finally:
        server.should_exit = True
        thread.join()


def create(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """Make a sandbox through the hub."""
    return answer(client.post("/sandbox", json={"name": "a sandbox", "docker_image": "host", **fields}))
