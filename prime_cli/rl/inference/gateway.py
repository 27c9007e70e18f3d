"""The gateway: one address and one dialect for all servers of a run.

It stands in front of vLLM, and of several servers of either engine; one embedded server speaks the dialect itself.
Public are DATA_ROUTES, /v1/models, /health and /metrics. The engines' control routes are passed on to all servers, to
whoever has the token of PRIME_RUN_ADMIN_TOKEN; vLLM's own have no lock, so its servers listen on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import die_with_parent
from prime_cli.rl.heartbeat import start_heartbeat
from prime_cli.rl.inference.answers import POLICY_VERSION_HEADER
from prime_cli.rl.inference.dialects import COMPLETIONS, DATA_ROUTES, Dialect, EmbeddedDialect, Reply, VllmDialect
from prime_cli.rl.inference.fan_out import FanOut
from prime_cli.rl.inference.gateway_settings import ADMIN_TOKEN_VARIABLE, GatewaySettings
from prime_cli.rl.inference.liveness import Pauses, watch
from prime_cli.rl.inference.protocol import error_body
from prime_cli.rl.inference.replicas import Replica, Replicas, conversation_of
from prime_cli.rl.last_words import last_words
from prime_cli.rl.run_directory import RunDirectory

_CONNECT_TIMEOUT_S = 5.0
_LONGEST_BODY = 256 << 20


class Gateway:
    """The routes over some servers."""

    def __init__(self, settings: GatewaySettings, session: aiohttp.ClientSession, admin_token: str) -> None:
        self._settings = settings
        self._session = session
        self._token = admin_token
        self._replicas = Replicas(settings.servers)
        self._pauses = Pauses()
        dialect = VllmDialect if settings.engine == "vllm" else EmbeddedDialect
        self._dialect: Dialect = dialect(session, settings.model)
        self._fan_out = FanOut(session, self._replicas, self._pauses, self._dialect, admin_token)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=_LONGEST_BODY)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/v1/models", self.models)
        for path in DATA_ROUTES:
            app.router.add_post(path, self.data)
        for path in self._fan_out.posts:
            app.router.add_post(path, self.admin)
        for path in self._fan_out.gets:
            app.router.add_get(path, self.admin)
        return app

    async def begin(self) -> None:
        """Name the weights that the servers started with version 0, where they call them otherwise."""
        if self._settings.engine == "vllm":
            await self._fan_out.send("POST", "/update_weight_version", "", b'{"new_version": "0"}')

    async def watch(self) -> None:
        """Watch all servers for ever.

        Raises:
            ServerSilent: one of them computes nothing any more.
        """
        limit = self._settings.liveness_timeout_s
        watches = (watch(replica, self._probe, self._pauses, timeout_s=limit) for replica in self._replicas.all)
        await asyncio.gather(*watches)

    async def data(self, request: web.Request) -> web.Response:
        """Have a server answer; another one where the first cannot be reached."""
        raw = await request.read()
        try:
            body = json.loads(raw)
            conversation = conversation_of(request.headers, body)
        except (ValueError, AttributeError, TypeError):
            return _error("the body is no request in JSON", 400)
        failed = None
        for _ in self._replicas.all:
            replica = self._replicas.choose(conversation, avoid=failed)
            with self._replicas.busy(replica):
                try:
                    reply = await self._dialect.ask(replica, request.path, raw, body)
                except aiohttp.ClientConnectionError:
                    failed = replica
                    continue
            replica.answers += 1
            headers = {POLICY_VERSION_HEADER: str(replica.version)}
            return web.Response(body=reply.body, status=reply.status, headers=headers, content_type="application/json")
        return _error("no inference server can be reached", 503)

    async def models(self, request: web.Request) -> web.Response:
        """List the policy, under the name that the run gives it."""
        first = self._replicas.all[0]
        async with self._session.get(f"{first.url}/v1/models") as response:
            listed = (await response.json())["data"][0]
        entry = {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "local",
                 "max_model_len": listed.get("max_model_len")}  # fmt: skip
        return web.json_response({"object": "list", "data": [entry]})

    async def health(self, request: web.Request) -> web.Response:
        """Say what each server does; 503 when one does not answer."""
        servers = [
            {"name": replica.name, "running": replica.in_flight, "policy_version": replica.version}
            for replica in self._replicas.all
        ]
        for replica in self._replicas.all:
            try:
                async with self._session.get(f"{replica.url}/health", timeout=_seconds(_CONNECT_TIMEOUT_S)) as response:
                    healthy = response.status == 200
            except (aiohttp.ClientError, TimeoutError):
                healthy = False
            if not healthy:
                return _error(f"{replica.name} does not answer", 503)
        running = sum(replica.in_flight for replica in self._replicas.all)
        return web.json_response({"status": "ok", "running": running, "waiting": 0, "servers": servers})

    async def metrics(self, request: web.Request) -> web.Response:
        """Return the metrics of all servers, each line with the server's name."""
        parts = []
        for replica in self._replicas.all:
            async with self._session.get(f"{replica.url}/metrics") as response:
                parts.append(with_label(await response.text(), "server", replica.name))
        return web.Response(text="".join(parts), content_type="text/plain")

    async def admin(self, request: web.Request) -> web.Response:
        """Pass a control request on to all servers; it has succeeded when it has with all."""
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            return _error("admin routes need the run's token", 403)
        reply = await self._fan_out.send(request.method, request.path, request.query_string, await request.read())
        return web.Response(body=reply.body, status=reply.status, content_type="application/json")

    async def _probe(self, replica: Replica) -> None:
        body = {"prompt": [0], "max_tokens": 1, "temperature": 0, "seed": 0}
        reply: Reply = await self._dialect.ask(replica, COMPLETIONS, json.dumps(body).encode(), body)
        if not reply.ok:
            raise OSError(f"HTTP {reply.status}")


def with_label(text: str, label: str, value: str) -> str:
    """Give every sample of a text of Prometheus metrics one label more."""
    lines = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, brace, rest = line.partition("{")
            if brace:
                line = f'{name}{{{label}="{value}",{rest}'
            else:
                name, _, rest = line.partition(" ")
                line = f'{name}{{{label}="{value}"}} {rest}'
        lines.append(line)
    return "\n".join(lines) + "\n"


def _error(message: str, status: int) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return web.json_response(error_body(message, kind), status=status)


def _seconds(total: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=_CONNECT_TIMEOUT_S)


@contextlib.asynccontextmanager
async def serving(settings: GatewaySettings, admin_token: str, port: int = 0) -> AsyncIterator[tuple[str, Gateway]]:
    """Serve on loopback for as long as the context lasts; yields the URL."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=_seconds(None)) as session:
        gateway = Gateway(settings, session, admin_token)
        # A client that goes away cancels its request at the server, which frees the slot.
        runner = web.AppRunner(gateway.app(), handler_cancellation=True, access_log=None, shutdown_timeout=2)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            await gateway.begin()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", gateway
        finally:
            await runner.cleanup()


async def _serve(run: RunDirectory, settings: GatewaySettings, admin_token: str) -> None:
    heartbeat = start_heartbeat()
    loop = asyncio.get_running_loop()
    if heartbeat is not None:
        heartbeat.follow(loop)
    async with serving(settings, admin_token) as (url, gateway):
        watching = asyncio.ensure_future(gateway.watch())
        loop.add_signal_handler(signal.SIGTERM, watching.cancel)
        write_json_atomically(run.ready("gateway"), {"url": url, "pid": os.getpid()})
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def main(arguments: list[str] | None = None) -> None:
    """Entry of `python -m prime_cli.rl.inference.gateway RUN`; its settings are in the environment."""
    parser = argparse.ArgumentParser(description="Stand in front of the inference servers of a run.")
    parser.add_argument("run_directory", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    run = RunDirectory(options.run_directory)
    settings = GatewaySettings.from_environment()
    with last_words(run, "gateway"):
        asyncio.run(_serve(run, settings, os.environ.get(ADMIN_TOKEN_VARIABLE, "")))


if __name__ == "__main__":
    main()
