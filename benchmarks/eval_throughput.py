"""Rollouts per second and memory of `prime eval run` beside the library's own `vf-eval`, in one run.

    python benchmarks/eval_throughput.py [--check] [--rounds 2] [--rollouts 1000] [--many 10000] [--latency 0.1]

Both evaluate the same environment of single turns, 64 rollouts at once, against a server in a process of its own that
answers each request after a fixed time; rounds of both take turns, so that a busy machine slows both. Printed for each:
rollouts per second of the whole command, the same from the first request to the last answer (`steady`: without loading
Python, the library and the environment), and the greatest memory of the process that a user starts; and that memory of
ours again with ten times the rollouts. With --check the exit code is 1 when ours is slower by either rate, or needs a
tenth more memory for the ten times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

AT_ONCE = 64
MOST_GROWTH = 1.1

ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

def length(completion):
    return float(len(completion[-1]["content"]) == 8)

def load_environment(size: int = 1000):
    prompts = ([{"role": "user", "content": f"question {i} " + "x" * 400}] for i in range(size))
    data = Dataset.from_list([{"prompt": prompt, "answer": "abcdefgh"} for prompt in prompts])
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[length]))
"""

SERVER = """
import asyncio, json, sys, time

latency = float(sys.argv[1])
choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "abcdefgh"}}
body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice],
                   "usage": {"prompt_tokens": 100, "completion_tokens": 8, "total_tokens": 108}}).encode()
models = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
seen = {"first": None, "last": None, "answers": 0}

def answer(data):
    return b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(data) + data

class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        self.received += data
        while b"\\r\\n\\r\\n" in self.received:
            headers, rest = self.received.split(b"\\r\\n\\r\\n", 1)
            lengths = headers.lower().split(b"content-length:")
            size = int(lengths[1].split(b"\\r\\n")[0]) if len(lengths) > 1 else 0
            if len(rest) < size:
                return
            self.received = rest[size:]
            if headers.startswith(b"POST"):
                seen["first"] = seen["first"] or time.monotonic()
                asyncio.get_running_loop().call_later(latency, self.complete)
            elif b"/seen" in headers.split(b"\\r\\n")[0]:
                self.transport.write(answer(json.dumps(seen).encode()))
                seen.update(first=None, last=None, answers=0)
            else:
                self.transport.write(answer(models))

    def complete(self):
        seen["last"], seen["answers"] = time.monotonic(), seen["answers"] + 1
        self.transport.write(answer(body))

async def main():
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Figures:
    """Rollouts per second of the whole command and in the steady state, and the greatest memory of its process."""

    whole: float
    steady: float
    peak_mb: float


@contextlib.contextmanager
def slow_model(latency_s: float) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to everything, after a fixed time."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(latency_s)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()


def measured(command: list[str], folder: Path, url: str, rollouts: int) -> Figures:
    """Run a command that evaluates, and look at it and at the server."""
    started = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(folder / "environments" / "measured"), "OPENAI_API_KEY": "none"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        peak_kb = 0
        while process.poll() is None:
            peak_kb = max(peak_kb, _peak_kb(process.pid))
            time.sleep(0.05)
    seconds = time.monotonic() - started
    with urllib.request.urlopen(f"{url}/seen") as response:
        seen = json.load(response)
    if process.returncode or seen["answers"] != rollouts:
        sys.exit(f"{' '.join(command)} answered {seen['answers']} of {rollouts}\n{(folder / 'log').read_text()}")
    return Figures(rollouts / seconds, rollouts / (seen["last"] - seen["first"]), peak_kb / 1024)


def _peak_kb(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return 0


def ours(url: str, rollouts: int) -> list[str]:
    """Return our command."""
    return [
        sys.executable, "-m", "prime_cli.main", "eval", "run", "measured", "-m", "m", "-b", f"{url}/v1",
        "-n", str(rollouts), "-r", "1", "-c", str(AT_ONCE), "-a", json.dumps({"size": rollouts}),
    ]  # fmt: skip


def theirs(url: str, rollouts: int) -> list[str]:
    """Return the library's command, as it is without options that we do not need."""
    return [
        sys.executable, "-m", "verifiers.scripts.eval", "measured", "-m", "m", "-b", f"{url}/v1", "-k",
        "OPENAI_API_KEY", "-n", str(rollouts), "-r", "1", "-c", str(AT_ONCE), "-a", json.dumps({"size": rollouts}),
        "-s", "-d",
    ]  # fmt: skip


def medians(figures: list[Figures]) -> Figures:
    """Return the median of each figure."""
    columns = zip(*((one.whole, one.steady, one.peak_mb) for one in figures), strict=True)
    return Figures(*(statistics.median(column) for column in columns))


def main() -> None:
    """Measure, print, and with --check compare with the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.1)
    options = parser.parse_args()
    found: dict[str, list[Figures]] = {"prime eval run": [], "vf-eval": []}
    with tempfile.TemporaryDirectory(prefix="prime-eval-") as name, slow_model(options.latency) as url:
        folder = Path(name)
        (folder / "environments" / "measured").mkdir(parents=True)
        (folder / "environments" / "measured" / "measured.py").write_text(ENVIRONMENT)
        (folder / "environments" / "measured" / "pyproject.toml").write_text(
            '[project]\nname = "measured"\nversion = "0.1.0"\n'
        )
        for _ in range(options.rounds):
            for tool, command in (("prime eval run", ours), ("vf-eval", theirs)):
                found[tool].append(measured(command(url, options.rollouts), folder, url, options.rollouts))
        many = measured(ours(url, options.many), folder, url, options.many)
    us, them = medians(found["prime eval run"]), medians(found["vf-eval"])
    print(f"{options.rollouts} rollouts, {AT_ONCE} at once, {options.latency} s an answer, {options.rounds} rounds")
    for tool, one in (("prime eval run", us), ("vf-eval", them)):
        print(f"{tool:15} {one.whole:6.1f} rollouts/s  {one.steady:6.1f} steady  {one.peak_mb:6.1f} MiB")
    growth = many.peak_mb / us.peak_mb
    print(f"ours at {options.many}: {many.steady:.1f} rollouts/s steady, {many.peak_mb:.1f} MiB, {growth:.2f} x")
    print(f"ours / vf-eval: {us.whole / them.whole:.2f} whole, {us.steady / them.steady:.2f} steady")
    if options.check and (us.whole < them.whole or us.steady < them.steady or growth > MOST_GROWTH):
        sys.exit(1)


if __name__ == "__main__":
    main()
