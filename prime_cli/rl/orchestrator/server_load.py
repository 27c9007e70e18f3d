"""Looks at the load of the inference server, and lets the number of rollouts in flight follow it."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable

import httpx

from prime_cli.rl.config import RLConfig
from prime_cli.rl.orchestrator.adaptive_concurrency import AdaptiveConcurrency, ServerLoad
from prime_cli.rl.orchestrator.curriculum import Concurrency, StaticConcurrency
from prime_cli.rl.orchestrator.dispatcher import Dispatcher

_LOOK_EVERY_S = 1.0
_TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"^vllm:(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def concurrency_of(config: RLConfig) -> Concurrency:
    """Return what the configuration asks for; an adaptive number begins as the static one would be."""
    settings = config.orchestrator.concurrency
    if settings.type == "static":
        return StaticConcurrency(config.max_inflight)
    initial = settings.initial_inflight or config.max_inflight
    return AdaptiveConcurrency(initial, low=settings.min_inflight, high=settings.max_inflight)


def load_in(text: str) -> ServerLoad | None:
    """Return the load that a server's /metrics tell of, or None when they do not.

    Of several servers behind one address, requests are added up, and the cache is that of the fullest.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in _SAMPLE.findall(text):
        found[name].append(float(value))
    if "kv_cache_usage_perc" not in found:
        return None
    return ServerLoad(
        usage=max(found["kv_cache_usage_perc"]),
        running=int(sum(found["num_requests_running"])),
        waiting=int(sum(found["num_requests_waiting"])),
        preemptions=int(sum(found["num_preemptions_total"])),
    )


async def follow_load(
    concurrency: AdaptiveConcurrency, dispatcher: Dispatcher, url: str, *, others: Callable[[], int]
) -> None:
    """Look at the server at `url` every second, for ever; one that does not answer changes nothing.

    `others` says how many rollouts beside those of `dispatcher` are in flight.
    """
    clock = asyncio.get_running_loop().time
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                response = await client.get("/metrics")
            except httpx.HTTPError:
                continue  # the launcher sees to a server that is gone
            load = load_in(response.text)
            if load is not None:
                dispatcher.shed(
                    concurrency.look(
                        load,
                        now_s=clock(),
                        in_flight=dispatcher.rollouts_in_flight + others(),
                        ended=dispatcher.rollouts_finished,
                    )
                )
