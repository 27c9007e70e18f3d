"""The embedded inference server: the engine behind the routes that vLLM has under the same names.

Public (`public_routes`): /health, /metrics, /v1/models, /v1/chat/completions, /v1/completions. Token ids in and out
(`token_routes`): /v1/chat/completions/tokens, /inference/v1/generate, /tokenize. Many of these at once (`many_route`):
/v1/many. Only with the bearer token of
PRIME_RUN_ADMIN_TOKEN (`admin_routes`): /pause, /resume, /is_paused, /collective_rpc (method reload_weights),
/reset_prefix_cache, /update_weight_version, /weight_info, /v1/load_lora_adapter, /v1/unload_lora_adapter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import torch
import uvicorn
from starlette.applications import Starlette

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import die_with_parent
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.heartbeat import Heartbeat, start_heartbeat
from prime_cli.rl.inference.admin_routes import AdminRoutes
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.engine import SlotEngine
from prime_cli.rl.inference.gateway_settings import ADMIN_TOKEN_VARIABLE
from prime_cli.rl.inference.many_route import ManyRoute
from prime_cli.rl.inference.public_routes import PublicRoutes
from prime_cli.rl.inference.slot_cache import slots_that_fit
from prime_cli.rl.inference.token_routes import TokenRoutes


def application(engine: SlotEngine, tokenizer: ChatTokenizer, *, model_name: str, admin_token: str) -> Starlette:
    """Return the ASGI application over one engine."""
    public, tokens = PublicRoutes(engine, tokenizer, model_name), TokenRoutes(engine, tokenizer, model_name)
    return Starlette(
        routes=[
            *public.routes(),
            *tokens.routes(),
            *ManyRoute(engine, public.readers() | tokens.readers()).routes(),
            *AdminRoutes(engine, admin_token).routes(),
        ]
    )


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
    app = application(engine, tokenizer, model_name=model_name, admin_token=os.environ.get(ADMIN_TOKEN_VARIABLE, ""))
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop's, where there is one
        runner.run(_run_until_stopped(uvicorn.Server(config), listener, engine, url, ready_file, heartbeat))


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
