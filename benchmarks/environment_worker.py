"""Processor time that one rollout costs an environment worker, beside the library's own client, in one run.

    python benchmarks/environment_worker.py [--json] [--check]

Goal (docs/SPECIFICATION.md): a single-turn rollout through the worker, its protocol included, takes at most half the
processor time that it takes with the client that verifiers makes by default. The model is a server that answers at
once, so that nothing but this work is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers, ModelEndpoint

GOAL_RATIO = 0.5
GROUPS, GROUP_SIZE, GROUPS_AT_ONCE = 60, 16, 16
SAMPLING = {"temperature": 1.0, "max_tokens": 12, "logprobs": True, "extra_body": {"return_token_ids": True}}

ENVIRONMENT = """
import difflib
import verifiers as vf
from datasets import Dataset

def similarity(completion, answer):
    return difflib.SequenceMatcher(None, completion[-1]["content"], answer).ratio()

def load_environment():
    rows = [{"prompt": [{"role": "user", "content": "abcdefg"}], "answer": "gfedcba"}]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[similarity]))
"""

SERVER = """
import asyncio, json

tokens = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}] * 8
choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "abcdefgh"},
          "token_ids": list(range(8)), "logprobs": {"content": tokens}}
body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice],
                   "prompt_token_ids": list(range(20)),
                   "usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}}).encode()
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body)

class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        while b"\\r\\n\\r\\n" in self.received:
            headers, rest = self.received.split(b"\\r\\n\\r\\n", 1)
            size = int(headers.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            if len(rest) < size:
                return
            self.received = rest[size:]
            self.transport.write(head + body)

async def main():
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


async def cost_per_rollout(run_group: Callable[[], Awaitable[Any]], cpu_seconds: Callable[[], float]) -> float:
    """Return milliseconds of processor time per rollout; the first groups, which warm things up, do not count."""
    slots = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def one() -> None:
        async with slots:
            await run_group()

    await asyncio.gather(*(one() for _ in range(GROUPS_AT_ONCE)))
    before = cpu_seconds()
    await asyncio.gather(*(one() for _ in range(GROUPS)))
    return 1000 * (cpu_seconds() - before) / (GROUPS * GROUP_SIZE)


async def through_worker(folder: Path, url: str) -> float:
    """Measure the worker process."""
    door = EnvironmentWorkers(
        EnvironmentSpec("measured"), python=Path(sys.executable), log_directory=folder / "logs", search_path=[folder]
    )
    try:
        await door.start()
        rows = await door.examples("train", limit=1)
        endpoint, inputs = ModelEndpoint(url, "m"), rows * GROUP_SIZE

        async def run_group() -> None:
            await door.run_group(inputs, endpoint, SAMPLING, state_columns=["trajectory"])

        return await cost_per_rollout(run_group, lambda: cpu_seconds_of(door.pids[0]))
    finally:
        await door.close()


async def by_the_library(folder: Path, url: str) -> float:
    """Measure verifiers alone, in this process, with the client that it makes itself."""
    sys.path.insert(0, str(folder))
    import verifiers

    environment = verifiers.load_environment("measured")
    client: Any = verifiers.ClientConfig(client_type="openai_chat_completions", api_base_url=url, api_key_var="UNSET")
    row = environment.get_dataset()[0]

    async def run_group() -> None:
        await environment.run_group([row] * GROUP_SIZE, client, "m", SAMPLING, state_columns=["trajectory"])

    return await cost_per_rollout(run_group, time.process_time)


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def instant_model() -> Iterator[str]:
    """Yield the URL of a server that gives one answer to everything, at once."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    finally:
        server.kill()
        server.wait()


def main() -> None:
    """Print the table; with --check exit 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, instant_model() as url:
        folder = Path(scratch)
        (folder / "measured.py").write_text(ENVIRONMENT)
        worker = asyncio.run(through_worker(folder, url))
        library = asyncio.run(by_the_library(folder, url))
    ratio = worker / library
    if options.json:
        print(
            json.dumps({"worker_ms": worker, "library_ms": library, "ratio": ratio, "goal_ratio": GOAL_RATIO}, indent=2)
        )
    else:
        for name, cost in (("through the worker", worker), ("verifiers' own client", library)):
            print(f"{name:24} {cost:6.2f} ms of processor time per rollout, {1000 / cost:6.0f} rollouts per second")
        print(f"goal: at most {GOAL_RATIO} x; here {ratio:.2f} x")
    if options.check and ratio > GOAL_RATIO:
        sys.exit(1)


if __name__ == "__main__":
    main()
