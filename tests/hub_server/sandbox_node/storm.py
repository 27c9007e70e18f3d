"""Many executions on a node while its parts are killed at random, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hub_server.sandboxes.tokens import make_token
from tests.hub_server.sandbox_node.host_traces import Process, control_groups_of, descendants, open_files
from tests.running_node import RunningNode, start_node

COMMANDS = (
    "echo hi",
    "setsid sleep 1000 > /dev/null 2>&1 &",
    "head -c 1000000 /dev/zero > /tmp/file; rm /tmp/file",
    "for i in 1 2 3 4 5 6 7 8; do sleep 0.01 & done; wait",
    "cat /dev/zero | head -c 300000",
    "kill -9 $$",
    "sleep 30",
)
USES_OF_A_SANDBOX = 6
MOST_SANDBOXES, MOST_LEFT = 12, 4


@dataclass
class Storm:
    """One storm over a node, which is started again when it was killed.

    `kills` names what is killed, and about how many executions lie between two kills of a kind.
    """

    data_dir: Path
    chance: random.Random
    kills: dict[str, int]
    node: RunningNode = field(init=False)
    outcomes: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    seen: set[Process] = field(default_factory=set)
    groups: set[Path] = field(default_factory=set)
    _names: int = 0
    _left: int = 0
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Start the node."""
        self.node = start_node(self.data_dir, most_sandboxes=MOST_SANDBOXES, least_idle=2, most_idle=2)
        self._left = 0
        self._open.set()

    async def run(self, executions: int, callers: int = 4) -> None:
        """Execute so often, in sandboxes that are used a few times each."""
        left = iter(range(executions))
        await asyncio.gather(*(self._caller(left) for _ in range(callers)))

    async def _caller(self, left: object) -> None:
        while True:
            await self._open.wait()
            node = self.node
            self._names += 1
            name = f"s{self._names}"
            made = await self._post(node, "/control/sandboxes", {"sandbox_id": name, "wait_s": 20}, node.secret)
            for _ in range(USES_OF_A_SANDBOX):
                if node is not self.node:
                    break  # it was killed, and nobody would answer
                if next(left, None) is None:  # type: ignore[call-overload]
                    await self._delete(node, name)
                    return
                await self._execute(node, name)
                await self._kill_something()
            # Some are left to their own, for the next node to remove; with more of them this one would be full.
            if made == "200" and (node is not self.node or self._left >= MOST_LEFT or self.chance.random() < 0.9):
                await self._delete(node, name)
            elif made == "200":
                self._left += 1

    async def _execute(self, node: RunningNode, name: str) -> None:
        token = make_token(bytes.fromhex(node.secret), name).text
        url = f"/sandboxes/{name}"
        if self.chance.random() < 0.2:
            said = await self._post(node, f"{url}/run-code", {"code": "print(sum(range(10)))", "timeout_s": 5}, token)
        else:
            command = self.chance.choice(COMMANDS)
            timeout = 0.3 if command == "sleep 30" else 10
            said = await self._post(node, f"{url}/exec", {"command": command, "timeout": timeout}, token)
        self.outcomes[said] += 1

    async def _post(self, node: RunningNode, path: str, body: dict[str, object], token: str) -> str:
        try:
            response = await self._http.post(
                node.url + path, json=body, headers={"Authorization": f"Bearer {token}"}, timeout=60
            )
        except httpx.HTTPError as error:
            return type(error).__name__
        return str(response.status_code)

    async def _delete(self, node: RunningNode, name: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            headers = {"Authorization": f"Bearer {node.secret}"}
            await self._http.delete(f"{node.url}/control/sandboxes/{name}", headers=headers, timeout=60)

    async def _kill_something(self) -> None:
        for what, between in self.kills.items():
            if self.chance.random() < 1 / between and self._open.is_set():
                await self.kill(what)

    async def kill(self, what: str) -> None:
        """Kill one process of a kind: `any` of a sandbox or its helpers, the `launcher`, or the `node`."""
        self.note()
        node = self.node
        if what == "node":
            self._open.clear()
            node.process.kill()
            node.process.wait()
            self.begin()
        else:
            below = descendants(node.process.pid)
            launchers = descendants(node.process.pid, depth=1)
            victims = launchers if what == "launcher" else [pid for pid in below if pid not in launchers]
            if not victims:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(victims), signal.SIGKILL)
        self.killed[what] += 1

    def note(self) -> None:
        """Remember the processes and control groups that there are now."""
        below = descendants(self.node.process.pid)
        self.seen |= {process for pid in below if (process := Process.of(pid)) is not None}
        self.groups |= control_groups_of(below)

    async def calm(self) -> tuple[int, int]:
        """Delete all sandboxes, and return how many descriptors the node and its launcher have once all is still."""
        headers = {"Authorization": f"Bearer {self.node.secret}"}
        ids = [f"s{number}" for number in range(self._names + 1)]
        for start in range(0, len(ids), 5000):
            await self._http.post(
                f"{self.node.url}/control/sandboxes:delete",
                json={"ids": ids[start : start + 5000]}, headers=headers, timeout=60,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        counts: tuple[int, int] | None = None
        while time.monotonic() < deadline:
            facts = (await self._http.get(f"{self.node.url}/control/node", headers=headers)).json()
            launcher = descendants(self.node.process.pid, depth=1)
            if facts["live"] == 0 and facts["idle"] == 2 and launcher:
                now = (open_files(self.node.process.pid), open_files(launcher[0]))
                if now == counts:
                    return now
                counts = now
            await asyncio.sleep(0.3)
        raise AssertionError(f"the node does not come to rest: {facts}, {counts}")

    async def __aenter__(self) -> Storm:
        self._http = httpx.AsyncClient(trust_env=False, verify=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
        if self.node.process.poll() is None:
            self.node.process.kill()
