"""Control requests go to all servers at once, and what they change is remembered here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from prime_cli.rl.inference.dialects import Dialect, Reply
from prime_cli.rl.inference.liveness import Pauses
from prime_cli.rl.inference.protocol import error_body
from prime_cli.rl.inference.replicas import Replica, Replicas

_QUICK_S, _SLOW_S = 30.0, 300.0
_SLOW = (
    "/collective_rpc", "/v1/load_lora_adapter", "/init_weight_transfer_engine", "/update_weights",
    "/finish_weight_update",
)  # fmt: skip


class FanOut:
    """Passes control requests on to every server."""

    posts = (
        "/pause", "/resume", "/reset_prefix_cache", "/update_weight_version", "/v1/unload_lora_adapter",
        "/start_weight_update", *_SLOW,
    )  # fmt: skip
    gets = ("/is_paused", "/weight_info")

    def __init__(
        self, session: aiohttp.ClientSession, replicas: Replicas, pauses: Pauses, dialect: Dialect, token: str
    ) -> None:
        self._session = session
        self._replicas = replicas
        self._pauses = pauses
        self._dialect = dialect
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._own_name = dialect.model

    async def send(self, method: str, path: str, query: str, raw: bytes) -> Reply:
        """Return the first server's answer, or what the first that did not succeed said."""
        if path == "/pause":
            self._pauses.begin()
        bodies = [raw] * len(self._replicas.all)
        if path == "/init_weight_transfer_engine":
            bodies = _with_rank_offsets(raw, len(bodies))
        target = path + (f"?{query}" if query else "")
        replies = await asyncio.gather(
            *(
                self._ask(replica, method, target, body)
                for replica, body in zip(self._replicas.all, bodies, strict=True)
            )
        )
        if path == "/resume":
            self._pauses.end()
        for replica, reply in zip(self._replicas.all, replies, strict=True):
            if not reply.ok:
                return Reply(reply.status, _named(replica, reply))
        if method == "POST":
            self._remember(path, raw)
        return replies[0]

    async def _ask(self, replica: Replica, method: str, target: str, body: bytes) -> Reply:
        limit = _SLOW_S if target.startswith(_SLOW) else _QUICK_S
        try:
            async with self._session.request(
                method,
                replica.url + target,
                data=body or None,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=limit),
            ) as response:
                return Reply(response.status, await response.read())
        except TimeoutError:
            return Reply(504, f"no answer within {limit:.0f} s".encode())
        except aiohttp.ClientError as error:
            return Reply(502, (str(error) or type(error).__name__).encode())

    def _remember(self, path: str, raw: bytes) -> None:
        body: dict[str, Any] = json.loads(raw) if raw else {}
        version = body.get("new_version") or body.get("weight_version")
        if version is not None:
            for replica in self._replicas.all:
                replica.version = int(version)
        if path == "/v1/load_lora_adapter":
            self._dialect.model = str(body["lora_name"])
        elif path == "/v1/unload_lora_adapter":
            self._dialect.model = self._own_name


def _with_rank_offsets(raw: bytes, count: int) -> list[bytes]:
    """Return the body for each of `count` servers: the ranks of their workers follow one another."""
    body = json.loads(raw)
    meeting = body["init_info"]
    first = int(meeting["rank_offset"])
    workers = (int(meeting["world_size"]) - first) // count
    return [
        json.dumps({**body, "init_info": {**meeting, "rank_offset": first + index * workers}}).encode()
        for index in range(count)
    ]


def _named(replica: Replica, reply: Reply) -> bytes:
    words = reply.body.decode(errors="replace")[:500]
    return json.dumps(error_body(f"{replica.name}: {words}", "server_error")).encode()
