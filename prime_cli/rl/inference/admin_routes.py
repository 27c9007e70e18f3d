"""The routes that change what the embedded server serves; only with the bearer token of the run."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prime_cli.rl.inference.adapters import Adapters
from prime_cli.rl.inference.answers import refusal
from prime_cli.rl.inference.engine import SlotEngine

Handler = Callable[[Request], Awaitable[Response]]


class AdminRoutes:
    """Pausing, weights and adapters, named as vLLM names them."""

    def __init__(self, engine: SlotEngine, admin_token: str) -> None:
        self._engine = engine
        self._adapters = Adapters(engine)
        self._admin_token = admin_token

    def routes(self) -> list[Route]:
        """Return the routes, each behind the token."""
        posts = {
            "/pause": self.pause,
            "/resume": self.resume,
            "/collective_rpc": self.collective_rpc,
            "/reset_prefix_cache": self.reset_prefix_cache,
            "/update_weight_version": self.update_weight_version,
            "/v1/load_lora_adapter": self.load_adapter,
            "/v1/unload_lora_adapter": self.unload_adapter,
        }
        gets = {"/is_paused": self.is_paused, "/weight_info": self.weight_info}
        return [
            *(Route(path, self._guarded(handler), methods=["POST"]) for path, handler in posts.items()),
            *(Route(path, self._guarded(handler)) for path, handler in gets.items()),
        ]

    async def pause(self, request: Request) -> Response:
        """Stop decoding, keeping the running requests (vLLM's mode=keep, the only one here)."""
        if request.query_params.get("mode", "keep") != "keep":
            return refusal("the embedded engine pauses with mode=keep only")
        await asyncio.to_thread(self._engine.pause)
        return JSONResponse({"status": "paused"})

    async def resume(self, request: Request) -> Response:
        """Go on decoding."""
        await asyncio.to_thread(self._engine.resume)
        return JSONResponse({"status": "resumed"})

    async def is_paused(self, request: Request) -> Response:
        """Say whether decoding is paused."""
        return JSONResponse({"is_paused": self._engine.is_paused})

    async def collective_rpc(self, request: Request) -> Response:
        """Run `reload_weights` with {"weights_path": folder}; no other method exists here."""
        try:
            body = json.loads(await request.body())
            method, folder = body["method"], Path(body.get("kwargs", {})["weights_path"])
        except (ValueError, KeyError, TypeError):
            return refusal("expected {method, kwargs: {weights_path}}")
        if method != "reload_weights":
            return refusal(f"unknown method {method!r}")
        try:
            await asyncio.to_thread(self._engine.load_weights, folder)
        except (KeyError, ValueError, OSError) as error:
            return refusal(f"weights not loaded: {error}")
        self._adapters.forget()
        return JSONResponse({"results": [None]})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Answer as vLLM does; this engine keeps nothing between requests that could go stale."""
        return JSONResponse({"success": True})

    async def update_weight_version(self, request: Request) -> Response:
        """Name the version of the loaded weights: {"new_version": "12"}."""
        try:
            version = int(json.loads(await request.body())["new_version"])
        except (ValueError, KeyError, TypeError):
            return refusal("expected {new_version: integer}")
        await asyncio.to_thread(self._engine.set_version, version)
        return JSONResponse({"status": "ok"})

    async def weight_info(self, request: Request) -> Response:
        """Return the version of the loaded weights."""
        return JSONResponse({"weight_version": str(self._engine.statistics.policy_version)})

    async def load_adapter(self, request: Request) -> Response:
        """Put the adapter in {"lora_name", "lora_path"} on the model, in place of the one before."""
        try:
            body: dict[str, Any] = json.loads(await request.body())
            name, folder = str(body["lora_name"]), Path(body["lora_path"])
        except (ValueError, KeyError, TypeError):
            return refusal("expected {lora_name, lora_path}")
        try:
            await asyncio.to_thread(self._adapters.load, name, folder)
        except (KeyError, ValueError, OSError) as error:
            return refusal(f"adapter not loaded: {error}")
        return JSONResponse({"status": "ok"})

    async def unload_adapter(self, request: Request) -> Response:
        """Take the adapter {"lora_name"} off again."""
        try:
            name = str(json.loads(await request.body())["lora_name"])
        except (ValueError, KeyError, TypeError):
            return refusal("expected {lora_name}")
        if name != self._adapters.name:
            return refusal(f"no adapter {name!r} is loaded", status=404)
        await asyncio.to_thread(self._adapters.unload)
        return JSONResponse({"status": "ok"})

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not self._admin_token or not hmac.compare_digest(given.encode(), self._admin_token.encode()):
                return refusal("admin routes need the run's token", status=403, kind="forbidden")
            return await handler(request)

        return guarded
