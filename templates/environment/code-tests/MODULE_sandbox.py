"""Sandboxes of a hub: one is made, runs programs, and is deleted again.

Where the hub is and who asks is found as every client finds it: PRIME_API_BASE_URL, PRIME_API_KEY and PRIME_TEAM_ID, else
`config.json` in `~/.prime` (or in PRIME_HOME), which `prime login` writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import verifiers as vf

DEFAULT_BASE_URL = "http://127.0.0.1:8480"
LIFETIME_MINUTES = 15  # should nobody delete it
IDLE_MINUTES = 5
LONGEST_START_S = 600.0  # how long a sandbox may wait for room on a node
HUB_S = 120.0  # how long a hub may take for an answer, when everybody asks at once
MAY_PASS = (502, 503, 504)
TRIES = 4


@dataclass(frozen=True)
class Login:
    """Which hub, and by what right."""

    base_url: str
    api_key: str
    team_id: str | None


def find_login() -> Login:
    """Return the login of the environment variables or of the settings file.

    Raises:
        vf.SandboxError: there is no key.
    """
    home = Path(os.environ.get("PRIME_HOME") or Path.home() / ".prime")
    try:
        stored = json.loads((home / "config.json").read_text())
    except (OSError, ValueError):
        stored = {}
    stored_url = _without_suffix(stored.get("base_url") or DEFAULT_BASE_URL)
    base_url = _without_suffix(os.environ.get("PRIME_API_BASE_URL") or os.environ.get("PRIME_BASE_URL") or stored_url)
    # A key that was stored for one hub is not shown to another.
    api_key = os.environ.get("PRIME_API_KEY") or (stored.get("api_key") if base_url == stored_url else "")
    if not api_key:
        raise vf.SandboxError(f"no API key for the hub at {base_url}: set PRIME_API_KEY, or run `prime login`")
    return Login(base_url, api_key, os.environ.get("PRIME_TEAM_ID") or stored.get("team_id") or None)


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that runs, and where it is reached."""

    id: str
    gateway: str
    token: str


class RanOut(Exception):
    """The sandbox is gone because what ran in it took all of its memory."""


class Sandboxes:
    """Makes sandboxes, uses them and deletes them. Every failure that is not the program's is a `vf.SandboxError`."""

    def __init__(self, image: str, cpu_cores: float, memory_gb: float, min_level: str | None = None) -> None:
        self.request: dict[str, Any] = {
            "name": "${distribution}",
            "docker_image": image,
            "cpu_cores": cpu_cores,
            "memory_gb": memory_gb,
            "disk_size_gb": 1,
            "gpu_count": 0,
            "timeout_minutes": LIFETIME_MINUTES,
            "idle_timeout_minutes": IDLE_MINUTES,
            "labels": ["${distribution}"],
            "vm": True,
        }
        if min_level is not None:
            self.request["advanced_configs"] = {"min_level": min_level}
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def create(self) -> Sandbox:
        """Make a sandbox and wait until it runs."""
        login = find_login()
        body = {**self.request, "idempotency_key": uuid.uuid4().hex}
        if login.team_id:
            body["team_id"] = login.team_id
        made = await self._hub("POST", "sandbox", login, json=body)
        waited_s, step_s = 0.0, 0.25
        answer = made
        while answer["status"] != "RUNNING":
            if answer["status"] not in ("PENDING", "PROVISIONING"):
                words = answer.get("errorMessage") or answer.get("terminationReason") or answer["status"]
                raise vf.SandboxError(f"sandbox {made['id']} did not start: {words}")
            if waited_s > LONGEST_START_S:
                await self.delete(made["id"])
                raise vf.SandboxError(f"sandbox {made['id']} did not start within {LONGEST_START_S:.0f} s")
            await asyncio.sleep(step_s)
            waited_s, step_s = waited_s + step_s, min(step_s * 1.5, 5.0)
            answer = await self._hub("GET", f"sandbox/{made['id']}", login)
        way = made.get("gatewayAuth") or await self._hub("POST", f"sandbox/{made['id']}/auth", login)
        gateway = f"{way['gateway_url'].rstrip('/')}/{way['user_ns']}/{way['job_id']}"
        return Sandbox(made["id"], gateway, way["token"])

    async def run_code(self, sandbox: Sandbox, code: str, inputs: list[str], timeout_s: float) -> list[dict[str, Any]]:
        """Run Python code once for each input on its stdin; a result is {stdout, stderr, exit_code, timed_out, ...}.

        Raises:
            RanOut: the code took the sandbox down.
        """
        body = {"program": {"code": code}, "inputs": inputs, "timeout_s": timeout_s}
        response = await self._send(
            "POST",
            f"{sandbox.gateway}/run-batch",
            sandbox.token,
            tries=1,  # what has run may have changed the sandbox
            json=body,
            timeout=httpx.Timeout(60.0 + timeout_s * len(inputs), connect=10.0),
        )
        if response.status_code in (404, 409, 410, 502):
            why = await self._hub("GET", f"sandbox/{sandbox.id}/error-context", find_login())
            if (why.get("errorType") or why.get("error_type")) == "OOM_KILLED":
                raise RanOut
        results = _answer(response)["results"]
        if len(results) != len(inputs):
            raise vf.SandboxError(f"the gateway gave {len(results)} results for {len(inputs)} inputs")
        return results

    async def delete(self, sandbox_id: str) -> None:
        """End a sandbox."""
        await self._hub("DELETE", f"sandbox/{sandbox_id}", find_login())

    async def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def _hub(self, method: str, path: str, login: Login, **options: Any) -> dict[str, Any]:
        return _answer(await self._send(method, f"{login.base_url}/api/v1/{path}", login.api_key, **options))

    async def _send(
        self, method: str, url: str, token: str, *, tries: int | None = None, **options: Any
    ) -> httpx.Response:
        """Send a request, `tries` times (TRIES) where it may have failed by chance: what a hub is asked can be repeated."""
        headers = {"Authorization": f"Bearer {token}"}
        tries = tries or TRIES
        for attempt in range(1, tries + 1):
            try:
                response = await self._client().request(method, url, headers=headers, **options)
            except httpx.TransportError as error:
                if attempt == tries:
                    raise vf.SandboxError(f"{method} {url}: {str(error) or type(error).__name__}") from error
            else:
                if response.status_code not in MAY_PASS or attempt == tries:
                    return response
            await asyncio.sleep(0.25 * 2**attempt)
        raise AssertionError("unreachable")

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:  # connections belong to a loop
            limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
            self._http, self._loop = httpx.AsyncClient(timeout=httpx.Timeout(HUB_S, connect=10.0), limits=limits), loop
        return self._http


def _answer(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json() if response.content else {}
    except ValueError:
        body = {}
    if response.is_success:
        return body
    words = body.get("detail") or body.get("message") or body.get("error") if isinstance(body, dict) else None
    raise vf.SandboxError(f"{response.request.url.path}: HTTP {response.status_code} {words or response.reason_phrase}")


def _without_suffix(url: str) -> str:
    return url.rstrip("/").removesuffix("/api/v1")
