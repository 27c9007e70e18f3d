"""What users of sandboxes do, timed through the published SDK: run by an interpreter that has it, and nothing of ours.

    python driver.py MEASURE JSON-OPTIONS        with PRIME_API_BASE_URL and PRIME_API_KEY set

Prints one JSON object. Times are in milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from prime_sandboxes import APIClient, AsyncSandboxClient, CreateSandboxRequest, SandboxClient

REQUEST = CreateSandboxRequest(name="benchmark", docker_image="host", labels=["benchmark"])
SNIPPET = "print(1)"
Times = list[float]


def timed(work: Callable[[], object], repeats: int) -> Times:
    """Return how long each of some calls took."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return times


def bare(repeats: int) -> dict[str, Times]:
    """Time the same commands without any sandbox, and bubblewrap's own start."""

    def run(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, capture_output=True)

    measured = {
        "bash": timed(run("/bin/bash", "-c", "echo hi"), repeats),
        "python": timed(run("/bin/bash", "-c", f"/usr/bin/python3 -c '{SNIPPET}'"), repeats),
    }
    if shutil.which("bwrap"):
        system = [flag for folder in ("/usr", "/bin", "/lib", "/lib64") for flag in ("--ro-bind", folder, folder)]
        cold = ["bwrap", "--unshare-all", *system, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        measured["bwrap"] = timed(run(*cold, "/bin/bash", "-c", "echo hi"), repeats)
    return measured


def first_command(repeats: int, pause_s: float) -> dict[str, Times]:
    """Time creations until the answer of the first command, each in a sandbox of its own."""
    client = SandboxClient(APIClient())
    times: dict[str, Times] = {"create": [], "first": []}
    for _ in range(repeats):
        began = time.perf_counter()
        sandbox = client.create(REQUEST)
        created = time.perf_counter()
        if sandbox.status != "RUNNING":
            client.wait_for_creation(sandbox.id)
        assert client.execute_command(sandbox.id, "echo hi").stdout == "hi\n"
        times["create"].append(1000 * (created - began))
        times["first"].append(1000 * (time.perf_counter() - began))
        client.delete(sandbox.id)
        time.sleep(pause_s)
    return times


def commands(repeats: int) -> dict[str, Times]:
    """Time commands and snippets in one sandbox."""
    client = SandboxClient(APIClient())
    sandbox = client.create(REQUEST)
    client.wait_for_creation(sandbox.id)

    def run(command: str, expected: str) -> None:
        assert client.execute_command(sandbox.id, command).stdout == expected

    gateway = gateway_of(sandbox.id)

    def run_code() -> None:
        answer = gateway.post("/run-code", json={"code": SNIPPET, "timeout_s": 10})
        assert answer.json()["stdout"] == "1\n", answer.text

    for _ in range(20):
        run("echo hi", "hi\n")
        run_code()
    measured = {
        "echo": timed(lambda: run("echo hi", "hi\n"), repeats),
        "python": timed(lambda: run(f"python3 -c '{SNIPPET}'", "1\n"), repeats),
        "fast": timed(run_code, repeats),
    }
    client.delete(sandbox.id)
    return measured


def gateway_of(sandbox_id: str) -> httpx.Client:
    """Return a plain HTTP client of a sandbox: the SDK has no call for snippets."""
    said = httpx.post(
        f"{os.environ['PRIME_API_BASE_URL']}/api/v1/sandbox/{sandbox_id}/auth",
        headers={"Authorization": f"Bearer {os.environ['PRIME_API_KEY']}"}, trust_env=False,
    ).json()  # fmt: skip
    return httpx.Client(
        base_url=f"{said['gateway_url']}/{said['user_ns']}/{said['job_id']}", trust_env=False,
        headers={"Authorization": f"Bearer {said['token']}"},
    )  # fmt: skip


def available_mib() -> float:
    """Return how much memory the machine has left."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("MemAvailable"))


async def live(count: int, at_once: int, repeats: int) -> dict[str, Any]:
    """Have many sandboxes at once, each with a process that stays; then time commands all over them."""
    async with AsyncSandboxClient() as client:
        began = time.perf_counter()

        async def make(_: int) -> str:
            sandbox = await client.create(REQUEST)
            if sandbox.status != "RUNNING":
                await client.wait_for_creation(sandbox.id)
            await client.execute_command(sandbox.id, "sleep 1000 > /dev/null 2>&1 &")
            return str(sandbox.id)

        ids = await bounded(make, range(count), at_once)
        made_s = time.perf_counter() - began
        available = available_mib()
        times = []
        for sandbox_id in itertools.islice(itertools.cycle(ids), repeats):
            began = time.perf_counter()
            assert (await client.execute_command(sandbox_id, "pgrep -c sleep")).stdout == "1\n"
            times.append(1000 * (time.perf_counter() - began))
        await client.bulk_delete(sandbox_ids=ids)
        return {"alive": len(set(ids)), "made_s": made_s, "available_mib": available, "command": times}


async def burst(count: int) -> dict[str, Any]:
    """Ask for many sandboxes at the same moment, run a command in each, and delete it."""
    failed: list[str] = []
    waits: Times = []
    async with AsyncSandboxClient() as client:
        began = time.perf_counter()

        async def use(_: int) -> None:
            try:
                sandbox = await client.create(REQUEST)
                if sandbox.status != "RUNNING":
                    await client.wait_for_creation(sandbox.id, max_attempts=180)
                assert (await client.execute_command(sandbox.id, "echo hi")).stdout == "hi\n"
                waits.append(1000 * (time.perf_counter() - began))
                await client.delete(sandbox.id)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is one that failed
                failed.append(f"{type(error).__name__}: {error}"[:300])

        await asyncio.gather(*map(use, range(count)))
        return {"failed": failed, "whole_s": time.perf_counter() - began, "waits": waits}


async def throughput(callers: int, seconds: float) -> dict[str, Any]:
    """Let callers, each with a sandbox of its own, run commands as fast as they are answered."""
    async with AsyncSandboxClient() as client:

        async def make(_: int) -> str:
            sandbox = await client.create(REQUEST)
            if sandbox.status != "RUNNING":
                await client.wait_for_creation(sandbox.id)
            return str(sandbox.id)

        ids = await bounded(make, range(callers), 8)

        async def loop(sandbox_id: str) -> Times:
            times = []
            while (began := time.perf_counter()) < until:
                assert (await client.execute_command(sandbox_id, "echo hi")).stdout == "hi\n"
                times.append(1000 * (time.perf_counter() - began))
            return times

        until = time.perf_counter() + 0.5
        await asyncio.gather(*map(loop, ids))
        until = time.perf_counter() + seconds
        took = await asyncio.gather(*map(loop, ids))
        await client.bulk_delete(sandbox_ids=ids)
        times = [each for some in took for each in some]
        return {"per_s": len(times) / seconds, "command": times}


async def bounded(work: Callable[[int], Awaitable[str]], over: range, at_once: int) -> list[str]:
    """Return the results of some calls, of which so many run at once."""
    permits = asyncio.Semaphore(at_once)

    async def one(number: int) -> str:
        async with permits:
            return await work(number)

    return list(await asyncio.gather(*map(one, over)))


MEASURES: dict[str, Callable[..., Any]] = {
    "bare": bare, "first_command": first_command, "commands": commands, "live": live, "burst": burst,
    "throughput": throughput,
}  # fmt: skip


def main() -> None:
    """Make one measure."""
    measured = MEASURES[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(asyncio.run(measured) if asyncio.iscoroutine(measured) else measured))


if __name__ == "__main__":
    main()
