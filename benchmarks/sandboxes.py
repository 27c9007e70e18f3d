"""Sandboxes of this machine through the published SDK, beside the same commands without one.

    python benchmarks/sandboxes.py [--json] [--check] [--repeats N] [--live N] [--burst N] [--seconds N]

Goals, on two quiet cores: from a creation to the answer of its first command 20 ms (median) and 100 ms (99 of 100);
an `echo` through the SDK 5 ms; a Python snippet 5 ms in a Python that has started already, 15 ms in a fresh one;
256 sandboxes alive at once; of 1,000 creations asked for at the same moment none fails. What one command costs without
a sandbox, and bubblewrap's own start, stand beside. Throughput and memory are told without a goal.

A hub and its node run as they do for users, with their defaults; the SDK is installed into a temporary environment from
the package index that pip is set to. Without bubblewrap and control groups there is nothing to measure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from running_hub import RunningHub, answer, start_hub

SDK = "prime-sandboxes==0.5.1"
DRIVER = Path(__file__).parent / "sandbox_load" / "driver.py"
CALLERS = (1, 4, 16, 64)
_NODE_WITHIN_S = 60


@dataclass(frozen=True)
class Row:
    """One thing that was timed: median and 99 of 100 in milliseconds, and how often; what the same costs outside."""

    name: str
    p50_ms: float
    p99_ms: float
    count: int
    bare_ms: float | None = None
    goal_p50_ms: float | None = None
    goal_p99_ms: float | None = None

    @classmethod
    def of(cls, name: str, times: list[float], bare: list[float] | None = None, *goals: float) -> Row:
        """Return the row of some times, and of the same work outside."""
        ordered = sorted(times)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return cls(name, statistics.median(times), p99, len(times), statistics.median(bare) if bare else None, *goals)

    def missed(self) -> list[str]:
        """Return in words what fell short."""
        short = []
        if self.goal_p50_ms is not None and self.p50_ms > self.goal_p50_ms:
            short.append(f"{self.name}: {self.p50_ms:.1f} ms, goal {self.goal_p50_ms:g} ms")
        if self.goal_p99_ms is not None and self.p99_ms > self.goal_p99_ms:
            short.append(f"{self.name}: {self.p99_ms:.1f} ms for 99 of 100, goal {self.goal_p99_ms:g} ms")
        return short


@dataclass(frozen=True)
class Counts:
    """What is counted rather than timed."""

    alive: int
    alive_goal: int
    made_s: float
    memory_mib_each: float
    burst: int
    burst_failed: list[str]
    burst_s: float
    per_s: dict[int, float]

    def missed(self) -> list[str]:
        """Return in words what fell short."""
        short = []
        if self.burst_failed:
            first = self.burst_failed[0]
            short.append(f"{len(self.burst_failed)} of {self.burst} creations failed; the first: {first}")
        if self.alive < self.alive_goal:
            short.append(f"{self.alive} sandboxes alive, goal {self.alive_goal}")
        return short


class Driver:
    """Runs measures in the SDK's own interpreter, as the administrator of a hub."""

    def __init__(self, python: Path, hub: RunningHub, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIME_", "PYTHON"))}
        access = {"PRIME_API_BASE_URL": hub.url, "PRIME_API_KEY": hub.admin_key, "HOME": str(home)}
        self._python, self._environment = python, {**kept, **access}

    def __call__(self, measure: str, **options: Any) -> dict[str, Any]:
        """Make one measure."""
        command = [str(self._python), str(DRIVER), measure, json.dumps(options)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{measure} could not be measured:\n{done.stderr}")
        measured: dict[str, Any] = json.loads(done.stdout)
        return measured


@contextmanager
def hub_with_sandboxes(folder: Path) -> Iterator[RunningHub]:
    """Run a hub with a node beside it."""
    hub = start_hub(folder / "data", "--sandboxes")
    try:
        deadline = time.monotonic() + _NODE_WITHIN_S
        with hub.client(hub.admin_key) as admin:
            while not answer(admin.get("/sandbox-nodes"))["nodes"]:
                if time.monotonic() > deadline or "there are no sandboxes on this machine" in hub.log:
                    raise SystemExit(f"no sandboxes on this machine:\n{hub.log}")
                time.sleep(0.1)
        time.sleep(2)  # the first pool is filled
        yield hub
    finally:
        hub.end()


def install_sdk(folder: Path) -> Path:
    """Install the SDK into an environment of its own; return its interpreter."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, SDK], check=True, capture_output=True)
    return python


def measure(options: argparse.Namespace, drive: Driver) -> tuple[list[Row], Counts]:
    """Make all measures."""
    repeats = options.repeats
    _tell("the same commands outside")
    bare = drive("bare", repeats=repeats)
    _tell("creations and their first commands")
    first = drive("first_command", repeats=repeats, pause_s=0.1)
    _tell("commands in one sandbox")
    inside = drive("commands", repeats=2 * repeats)
    rows = [
        Row.of("bash without a sandbox", bare["bash"]),
        Row.of("fresh python without a sandbox", bare["python"]),
        *([Row.of("bubblewrap's own start, and bash", bare["bwrap"])] if "bwrap" in bare else []),
        Row.of("creation, as the SDK sees it", first["create"]),
        Row.of("creation to first answer", first["first"], bare.get("bwrap"), 20.0, 100.0),
        Row.of("echo", inside["echo"], bare["bash"], 5.0),
        Row.of("snippet in a fresh python", inside["python"], bare["python"], 15.0),
        Row.of("snippet in a python that runs", inside["fast"], bare["python"], 5.0),
    ]
    _tell(f"{options.live} sandboxes at once")
    before = _available_mib()
    live = drive("live", count=options.live, at_once=8, repeats=repeats)
    rows.append(Row.of(f"command among {live['alive']} live sandboxes", live["command"]))
    per_s = {}
    for callers in CALLERS:
        _tell(f"{callers} callers at once")
        loaded = drive("throughput", callers=callers, seconds=options.seconds)
        per_s[callers] = loaded["per_s"]
        rows.append(Row.of(f"echo, {callers} callers at once", loaded["command"]))
    _tell(f"{options.burst} creations at the same moment")
    burst = drive("burst", count=options.burst)
    counts = Counts(
        live["alive"], options.live, live["made_s"], (before - live["available_mib"]) / live["alive"],
        options.burst, burst["failed"], burst["whole_s"], per_s,
    )  # fmt: skip
    return rows, counts


def _available_mib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1024


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _print(rows: list[Row], counts: Counts) -> None:
    print(f"{'':38}{'median':>12}{'99 of 100':>12}{'outside':>12}{'times':>8}{'goals':>16}")
    for row in rows:
        beside = (f"{row.bare_ms:9.2f} ms", f"{row.p50_ms / row.bare_ms:8.2f}") if row.bare_ms else ("", "")
        goals = " / ".join(f"{goal:g}" for goal in (row.goal_p50_ms, row.goal_p99_ms) if goal is not None)
        print(f"{row.name:38}{row.p50_ms:9.2f} ms{row.p99_ms:9.2f} ms{beside[0]:>12}{beside[1]:>8}{goals:>16}")
    each = f"{counts.memory_mib_each:.1f} MiB each with a process of its own"
    print(f"{counts.alive} alive at once, made in {counts.made_s:.1f} s, {each}")
    print(
        f"{counts.burst} creations at once: {len(counts.burst_failed)} failed, all done in {counts.burst_s:.1f} s"
        f" ({counts.burst / counts.burst_s:.0f} /s)"
    )
    for callers, per_s in counts.per_s.items():
        print(f"{callers} callers: {per_s:.0f} commands /s")


def main() -> None:
    """Print all figures; with --check exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeats", type=int, default=200, help="calls behind each median")
    parser.add_argument("--live", type=int, default=256, help="sandboxes that live at once")
    parser.add_argument("--burst", type=int, default=1000, help="creations asked for at the same moment")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each number of callers calls")
    parser.add_argument("--sdk-python", type=Path, help="an interpreter that has the SDK already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PRIME_HOME"] = name
        python = options.sdk_python or install_sdk(folder / "sdk")
        with hub_with_sandboxes(folder) as hub:
            rows, counts = measure(options, Driver(python, hub, folder))
    short = [words for row in rows for words in row.missed()] + counts.missed()
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "counts": asdict(counts), "missed": short}))
    else:
        _print(rows, counts)
        print("\n".join(f"missed: {words}" for words in short) or "met")
    if options.check and short:
        sys.exit(1)


if __name__ == "__main__":
    main()
