"""What the hop through the gateway costs: the same requests straight to an embedded server and through a gateway.

    python benchmarks/gateway_hop.py [--check] [--requests 100] [--rounds 5]

Server and gateway are processes of their own, as in a run; rounds of both ways alternate, so that a busy machine slows
both. Printed: the median time of a request alone, and requests per second of 16 at once, of 8 tokens each. With --check
the exit code is 1 when the gateway lets through less than half of the requests, or a request alone takes 10 ms longer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from prime_cli.core.processes import end_process_groups
from prime_cli.models.tiny_qwen3 import write_model
from prime_cli.rl.inference.gateway_settings import GatewaySettings
from prime_cli.rl.inference.serving import serve_model_folder, wait_until_ready
from prime_cli.rl.run_directory import RunDirectory

AT_ONCE = 16
LEAST_THROUGHPUT, MOST_EXTRA_S = 0.5, 0.010


async def one(session: aiohttp.ClientSession, url: str, number: int) -> float:
    """Return the seconds of one request."""
    body = {
        "messages": [{"role": "user", "content": f"request {number % 16}"}], "max_tokens": 8, "ignore_eos": True,
        "logprobs": True, "return_token_ids": True,
    }  # fmt: skip
    started = time.perf_counter()
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()
    return time.perf_counter() - started


async def one_round(session: aiohttp.ClientSession, url: str, count: int) -> tuple[float, float]:
    """Return the median seconds of a request alone, and requests per second of AT_ONCE at once."""
    alone = [await one(session, url, number) for number in range(count // 4)]
    free = asyncio.Semaphore(AT_ONCE)

    async def queued(number: int) -> None:
        async with free:
            await one(session, url, number)

    started = time.perf_counter()
    await asyncio.gather(*(queued(number) for number in range(count)))
    return statistics.median(alone), count / (time.perf_counter() - started)


async def compare(direct: str, through: str, count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return medians over rounds of both ways, which take turns."""
    found: dict[str, list[tuple[float, float]]] = {"direct": [], "gateway": []}
    async with aiohttp.ClientSession() as session:
        for _ in range(rounds + 1):  # the first warms up
            found["direct"].append(await one_round(session, direct, count))
            found["gateway"].append(await one_round(session, through, count))
    return {
        way: (statistics.median(a for a, _ in pairs[1:]), statistics.median(t for _, t in pairs[1:]))
        for way, pairs in found.items()
    }


def main() -> None:
    """Start both, compare, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prime-gateway-") as name:
        scratch = Path(name)
        write_model("tiny-qwen3", scratch / "model", seed=0)
        run = RunDirectory(scratch / "run")
        (run.path / "status").mkdir(parents=True)
        with serve_model_folder(scratch / "model", log_path=scratch / "server.log") as served:
            settings = GatewaySettings({"inference": served.admin_url}, "embedded", served.model, 60)
            command = [sys.executable, "-m", "prime_cli.rl.inference.gateway", str(run.path)]
            with (scratch / "gateway.log").open("wb") as log:
                process = subprocess.Popen(
                    command, env=os.environ | settings.variables(), stderr=log, start_new_session=True
                )
            try:
                ready = run.ready("gateway")
                through = wait_until_ready(process, ready, log_path=scratch / "gateway.log", timeout_s=120)
                found = asyncio.run(compare(served.admin_url, through, options.requests, options.rounds))
            finally:
                end_process_groups([process])
    for way, (alone_s, per_second) in found.items():
        print(f"{way:8s} {alone_s * 1000:6.2f} ms alone  {per_second:7.1f} requests/s, {AT_ONCE} at once")
    extra_s = found["gateway"][0] - found["direct"][0]
    share = found["gateway"][1] / found["direct"][1]
    print(f"the hop takes {extra_s * 1000:.2f} ms; {share:.2f} of the requests per second")
    sys.exit(int(options.check and (share < LEAST_THROUGHPUT or extra_s > MOST_EXTRA_S)))


if __name__ == "__main__":
    main()
