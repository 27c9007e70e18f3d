"""The embedded inference server: the engine behind the routes that vLLM has under the same names.

Public: /health, /v1/models, /v1/chat/completions. Admin, only with the bearer token of PRIME_INFERENCE_ADMIN_TOKEN:
/pause, /resume, /is_paused, /collective_rpc (method reload_weights), /reset_prefix_cache, /update_weight_version,
/weight_info.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import torch
import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import die_with_parent
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.heartbeat import Heartbeat, start_heartbeat
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.engine import Completion, SlotEngine
from prime_cli.rl.inference.protocol import (
    ChatRequest,
    CompletionRequest,
    SamplingRequest,
    chat_response,
    completion_response,
    error_body,
)
from prime_cli.rl.inference.slot_cache import slots_that_fit

ADMIN_TOKEN_VARIABLE = "PRIME_INFERENCE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable

_DISCONNECT_CHECK_S = 1.0

Handler = Callable[[Request], Awaitable[Response]]


class InferenceServer:
    """The routes over one engine."""

    def __init__(self, engine: SlotEngine, tokenizer: ChatTokenizer, *, model_name: str, admin_token: str) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.model_name = model_name
        self._admin_token = admin_token

    def app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/pause", self._admin(self.pause), methods=["POST"]),
                Route("/resume", self._admin(self.resume), methods=["POST"]),
                Route("/is_paused", self._admin(self.is_paused)),
                Route("/collective_rpc", self._admin(self.collective_rpc), methods=["POST"]),
                Route("/reset_prefix_cache", self._admin(self.reset_prefix_cache), methods=["POST"]),
                Route("/update_weight_version", self._admin(self.update_weight_version), methods=["POST"]),
                Route("/weight_info", self._admin(self.weight_info)),
            ]
        )

    async def health(self, request: Request) -> Response:
        """200 while the engine's thread lives, else 503."""
        if not self.engine.is_alive:
            return JSONResponse(error_body("the engine has stopped", "server_error"), status_code=503)
        statistics = self.engine.statistics
        return JSONResponse(
            {"status": "ok", "running": statistics.running, "waiting": statistics.waiting, "steps": statistics.steps}
        )

    async def models(self, request: Request) -> Response:
        """List the one model."""
        entry = {
            "id": self.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "local",
            "max_model_len": self.engine.context_length,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        try:
            chat_request = ChatRequest.model_validate_json(await request.body())
            prompt_ids = self.tokenizer.prompt_ids(chat_request)
        except (ValidationError, ValueError) as error:
            return JSONResponse(error_body(_one_line(error)), status_code=400)
        try:
            completion = await self._complete(prompt_ids, chat_request, request)
        except ValueError as error:
            return JSONResponse(error_body(str(error)), status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it; the slot is free again
        except RuntimeError as error:
            return JSONResponse(error_body(str(error), "server_error"), status_code=503)
        text, tokens = self.tokenizer.decode(completion, with_tokens=bool(chat_request.logprobs))
        body = chat_response(chat_request, completion, model=self.model_name, text=text, tokens=tokens)
        return JSONResponse(body)

    async def complete(self, request: Request) -> Response:
        """Complete token ids, and score them where `prompt_logprobs` is asked for."""
        try:
            wanted = CompletionRequest.model_validate_json(await request.body())
            scores = None
            if wanted.prompt_logprobs is not None:
                scores = await asyncio.to_thread(self.engine.score, wanted.prompt)
            completion = Completion(wanted.prompt)
            if scores is None or len(wanted.prompt) < self.engine.context_length:
                completion = await self._complete(wanted.prompt, wanted, request)
        except (ValidationError, ValueError) as error:
            return JSONResponse(error_body(_one_line(error)), status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)
        except RuntimeError as error:
            return JSONResponse(error_body(str(error), "server_error"), status_code=503)
        text, _ = self.tokenizer.decode(completion, with_tokens=False)
        body = completion_response(completion, model=self.model_name, text=text, prompt_logprobs=scores)
        return JSONResponse(body)

    async def _complete(self, prompt_ids: list[int], request: SamplingRequest, http: Request) -> Completion:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()

        def deliver(result: Completion | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(RuntimeError(f"the engine failed: {result}"))
            else:
                future.set_result(result)

        def on_done(result: Completion | Exception) -> None:
            with contextlib.suppress(RuntimeError):  # the loop closed: nobody waits any more
                loop.call_soon_threadsafe(deliver, result)

        cancelled = self.engine.submit(prompt_ids, request.sampling(), on_done)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_DISCONNECT_CHECK_S)
                if not future.done() and await http.is_disconnected():
                    raise ClientDisconnect
            return future.result()
        finally:
            cancelled.set()

    async def pause(self, request: Request) -> Response:
        """Stop decoding, keeping the running requests (vLLM's mode=keep, the only one here)."""
        if request.query_params.get("mode", "keep") != "keep":
            return JSONResponse(error_body("the embedded engine pauses with mode=keep only"), status_code=400)
        await asyncio.to_thread(self.engine.pause)
        return JSONResponse({"status": "paused"})

    async def resume(self, request: Request) -> Response:
        """Go on decoding."""
        await asyncio.to_thread(self.engine.resume)
        return JSONResponse({"status": "resumed"})

    async def is_paused(self, request: Request) -> Response:
        """Say whether decoding is paused."""
        return JSONResponse({"is_paused": self.engine.is_paused})

    async def collective_rpc(self, request: Request) -> Response:
        """Run `reload_weights` with {"weights_path": folder}; no other method exists here."""
        try:
            body = json.loads(await request.body())
            method, folder = body["method"], Path(body.get("kwargs", {})["weights_path"])
        except (ValueError, KeyError, TypeError):
            return JSONResponse(error_body("expected {method, kwargs: {weights_path}}"), status_code=400)
        if method != "reload_weights":
            return JSONResponse(error_body(f"unknown method {method!r}"), status_code=400)
        try:
            await asyncio.to_thread(self.engine.load_weights, folder)
        except (KeyError, ValueError, OSError) as error:
            return JSONResponse(error_body(f"weights not loaded: {error}"), status_code=400)
        return JSONResponse({"results": [None]})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Answer as vLLM does; this engine keeps nothing between requests that could go stale."""
        return JSONResponse({"success": True})

    async def update_weight_version(self, request: Request) -> Response:
        """Name the version of the loaded weights: {"new_version": "12"}."""
        try:
            version = int(json.loads(await request.body())["new_version"])
        except (ValueError, KeyError, TypeError):
            return JSONResponse(error_body("expected {new_version: integer}"), status_code=400)
        await asyncio.to_thread(self.engine.set_version, version)
        return JSONResponse({"status": "ok"})

    async def weight_info(self, request: Request) -> Response:
        """Return the version of the loaded weights."""
        return JSONResponse({"weight_version": str(self.engine.statistics.policy_version)})

    def _admin(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not self._admin_token or not hmac.compare_digest(given.encode(), self._admin_token.encode()):
                return JSONResponse(error_body("admin routes need the run's token", "forbidden"), status_code=403)
            return await handler(request)

        return guarded


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"
    return str(error)


def serve(
    folder: Path,
    *,
    host: str,
    port: int,
    model_name: str,
    num_slots: int,
    seed: int,
    ready_file: Path | None,
    heartbeat: Heartbeat | None = None,
) -> None:
    """Serve the model in `folder` until SIGTERM or SIGINT.

    Args:
        heartbeat: beats from now on as long as the event loop takes turns.

    Raises:
        NotAModel: the folder is not a model.
        PrimeError: the port is in use.
    """
    listener = _listen(host, port)
    torch.set_num_threads(int(os.environ.get("PRIME_TORCH_THREADS", "1" if not torch.cuda.is_available() else "4")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_causal_model(folder, device=device, dtype="float32" if device == "cpu" else "bfloat16")
    tokenizer = ChatTokenizer(load_tokenizer(folder))
    context = min(int(getattr(model.config, "max_position_embeddings", 4096)), 4096)
    room = slots_that_fit(
        model.config,
        context_length=context,
        bytes_per_value=model.dtype.itemsize,
        budget_bytes=_cache_budget_bytes(device),
    )
    engine = SlotEngine(
        model,
        eos_token_ids=tokenizer.eos_ids(model),
        num_slots=min(num_slots, room),
        context_length=context,
        seed=seed,
    )
    engine.start()
    server = InferenceServer(
        engine, tokenizer, model_name=model_name, admin_token=os.environ.get(ADMIN_TOKEN_VARIABLE, "")
    )
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(server.app(), log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    asyncio.run(_run_until_stopped(uvicorn.Server(config), listener, engine, url, ready_file, heartbeat))


def _cache_budget_bytes(device: str) -> int:
    """Return a quarter of the memory that is free: the rest is for the model, its activations and its neighbours."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0]) // 4
    return int(psutil.virtual_memory().available) // 4


async def _run_until_stopped(
    server: uvicorn.Server,
    listener: socket.socket,
    engine: SlotEngine,
    url: str,
    ready_file: Path | None,
    heartbeat: Heartbeat | None,
) -> None:
    if heartbeat is not None:
        heartbeat.follow(asyncio.get_running_loop())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if ready_file is not None and server.started:
        write_json_atomically(ready_file, {"url": url, "pid": os.getpid()})
    print(f"serving on {url}/v1", file=sys.stderr, flush=True)  # noqa: T201 - the line that users wait for
    while not serving.done():
        await asyncio.wait([serving], timeout=0.5)
        if not engine.is_alive:
            # A server whose engine is gone must not look alive to whoever watches the process.
            os.kill(os.getpid(), signal.SIGTERM)
            await serving
            raise RuntimeError("the engine stopped") from engine.failure
    await asyncio.to_thread(engine.stop)


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PrimeError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="use another `--port`, or 0 for a free one"
        ) from None
    listener.listen(2048)
    return listener


def main(arguments: list[str] | None = None) -> None:
    """Entry of `python -m prime_cli.rl.inference.server`, the process that launchers start."""
    parser = argparse.ArgumentParser(description="Serve a model folder behind an OpenAI-compatible API.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--num-slots", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ready-file", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    heartbeat = start_heartbeat()
    try:
        serve(**vars(options), heartbeat=heartbeat)
    except PrimeError as error:
        sys.exit(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
