"""How soon the viewer paints: a small evaluation, one of 1 GB, and the same again once its index is kept.

    python benchmarks/viewer.py [--gigabytes 1.0] [--json] [--check]

Goals (docs/SPECIFICATION.md): the first rollouts are on the screen within 300 ms after imports, within 1 s of a results
file of 1 GB with 100,000 rollouts, and within 300 ms when that file is opened again. The file is made in a temporary
folder and removed. Beside it: reading the same file whole with `json`, which is what a viewer without an index does.
Each opening is a process of its own; the clock starts when the imports are done, and stops when the screen with the
first rollouts was drawn. On a busy machine
look at the processor time, which the index in the background is part of.
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
from pathlib import Path
from typing import Any

SMALL_GOAL_MS, LARGE_GOAL_MS, AGAIN_GOAL_MS = 300.0, 1000.0, 300.0
ROLLOUTS = 100_000
ROUNDS = 5

OPEN = """
import asyncio, json, sys, time
from pathlib import Path
from prime_cli.viewer.app import view_evaluations
from prime_cli.viewer.widgets.conversation import Conversation
from prime_cli.viewer.widgets.rollout_list import RolloutList

async def main():
    seconds = {}
    started, processor = time.perf_counter(), time.process_time()
    app = view_evaluations(Path(sys.argv[1]))
    # Not run_test's own waiting: the clock must stop when the rows are drawn, whatever goes on in the background.
    async with app.run_test(size=(160, 50)) as pilot:
        while True:
            lists = app.screen.query(RolloutList)
            if lists and lists.first().numbers and app.screen.query_one(Conversation).sections:
                break
            await asyncio.sleep(0.002)
        app.screen.refresh()
        drawn = app.export_screenshot()
        assert "question" in drawn, "the first rollout is on the screen"
        seconds["paint"], seconds["work"] = time.perf_counter() - started, time.process_time() - processor
        if "indexed" in sys.argv:
            while app.screen.index.share_done < 1:
                await asyncio.sleep(0.05)
            seconds["indexed"] = time.perf_counter() - started
            seconds["count"] = app.screen.index.count
            started = time.perf_counter()
            await pilot.press("end")
            assert app.screen.query_one(RolloutList).current == seconds["count"] - 1
            seconds["to the last"] = time.perf_counter() - started
        import resource
        seconds["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(seconds))

asyncio.run(main())
"""

READ_WHOLE = """
import json, resource, sys, time
started = time.perf_counter()
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
seconds = time.perf_counter() - started
print(json.dumps({"paint": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def write_evaluation(folder: Path, rollouts: int, line_bytes: int) -> None:
    """Write an evaluation whose lines are about so long."""
    folder.mkdir(parents=True)
    words = "and then it is explained at length, one step after the other, "
    answer = (words * (line_bytes // len(words) + 1))[: max(0, line_bytes - 330)]
    with (folder / "results.jsonl").open("w") as file:
        for number in range(rollouts):
            row = {
                "example_id": number // 4,
                "prompt": [{"role": "user", "content": f"question {number}"}],
                "completion": [{"role": "assistant", "content": f"{answer} {number}"}],
                "reward": number % 11 / 10, "error": None, "metrics": {"exact": float(number % 2)},
                "task": f"kind-{number % 5}", "is_truncated": False,
                "token_usage": {"input_tokens": 20.0, "output_tokens": float(line_bytes // 5)},
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
    (folder / "metadata.json").write_text(json.dumps({"env_id": "bench", "model": "none", "num_rollouts": rollouts}))


def opened(code: str, folder: Path, home: Path, *more: str) -> dict[str, float]:
    """Open an evaluation in a process of its own; return its times in seconds and its memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), *more],
        env={**os.environ, "PRIME_HOME": str(home)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


def measure(gigabytes: float) -> dict[str, Any]:
    """Return the times in milliseconds, and the memory of the large ones."""
    with tempfile.TemporaryDirectory(prefix="viewer-bench-") as name:
        root = Path(name)
        write_evaluation(root / "small", 200, 2000)
        write_evaluation(root / "large", ROLLOUTS, int(gigabytes * 1e9 / ROLLOUTS))
        small = [opened(OPEN, root / "small", root / "home") for _ in range(ROUNDS)]
        # A kept index would spare the work that is measured: each opening for the first time gets a home of its own.
        first = [opened(OPEN, root / "large", root / f"home-{number}") for number in range(ROUNDS)]
        indexed = opened(OPEN, root / "large", root / "home", "indexed")
        again = [opened(OPEN, root / "large", root / "home") for _ in range(ROUNDS)]
        whole = opened(READ_WHOLE, root / "large", root / "home")
        return {
            "file_mb": (root / "large" / "results.jsonl").stat().st_size / 1e6,
            **_medians("small", small),
            **_medians("large", first),
            **_medians("large_again", again),
            "large_indexed_ms": 1000 * indexed["indexed"],
            "large_to_the_last_ms": 1000 * indexed["to the last"],
            "large_memory_mib": indexed["memory"],
            "read_whole_ms": 1000 * whole["paint"],
            "read_whole_memory_mib": whole["memory"],
        }


def _medians(name: str, openings: list[dict[str, float]]) -> dict[str, float]:
    """Return the median time until the first rollouts were drawn, and the median processor time that it took."""
    return {
        f"{name}_ms": 1000 * statistics.median(one["paint"] for one in openings),
        f"{name}_processor_ms": 1000 * statistics.median(one["work"] for one in openings),
    }


def main() -> None:
    """Print the table; with --check exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    found = measure(options.gigabytes)
    goals = {"small_ms": SMALL_GOAL_MS, "large_ms": LARGE_GOAL_MS, "large_again_ms": AGAIN_GOAL_MS}
    if options.json:
        print(json.dumps({**found, "goals": goals}, indent=2))
    else:
        print(f"a results file of {found['file_mb']:,.0f} MB with {ROLLOUTS:,} rollouts")
        rows = {
            "small evaluation, first rollouts drawn": "small_ms",
            "large one, for the first time": "large_ms",
            "large one, again": "large_again_ms",
            "large one, indexed in the background": "large_indexed_ms",
            "large one, to the last rollout": "large_to_the_last_ms",
            "reading it whole with json": "read_whole_ms",
        }
        for words, key in rows.items():
            work = found.get(key.replace("_ms", "_processor_ms"))
            goal = f"   goal {goals[key]:,.0f} ms   processor {work:,.0f} ms" if key in goals else ""
            print(f"{words:42}{found[key]:10,.0f} ms{goal}")
        print(f"{'memory, indexed':42}{found['large_memory_mib']:10,.0f} MiB")
        print(f"{'memory, read whole':42}{found['read_whole_memory_mib']:10,.0f} MiB")
        print(f"all of it took {time.monotonic() - started:.0f} s")
    if options.check and any(found[key] > goal for key, goal in goals.items()):
        sys.exit(1)


if __name__ == "__main__":
    main()
