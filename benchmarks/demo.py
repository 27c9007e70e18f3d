"""Runs the demo for several seeds and prints what came out beside the goal.

    python benchmarks/demo.py [--seeds 0 1 2] [--json] [--check]

Goal (docs/SPECIFICATION.md): for each seed at most 300 s, a held-out reward of at least 0.90 after training, and at
least 0.25 above the reward before it. Rewards are means over 200 strings at temperature 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_SECONDS = 300.0
MIN_REWARD = 0.90
MIN_RISE = 0.25


def main() -> None:
    """Run, print the table; with --check exit 1 when a seed falls short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = [run_demo(seed) for seed in options.seeds]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(f"{'seed':>4} {'before':>7} {'after':>7} {'rise':>6} {'seconds':>8}  steps")
        for row in rows:
            steps = "  ".join(f"{name} {seconds:.0f}" for name, seconds in row["steps"].items())
            before, after = row["baseline_reward"], row["final_reward"]
            print(
                f"{row['seed']:>4} {before:>7.3f} {after:>7.3f} {after - before:>6.3f} {row['seconds']:>8.1f}  {steps}"
            )
        print(f"goal: after at least {MIN_REWARD}, rise at least {MIN_RISE}, at most {MAX_SECONDS:.0f} s")
    if options.check and not all(reaches_the_goal(row) for row in rows):
        sys.exit(1)


def run_demo(seed: int) -> dict:
    """Run `prime lab demo` for one seed and return its summary."""
    prime = Path(sys.executable).with_name("prime")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "demo"
        subprocess.run([prime, "lab", "demo", "--seed", str(seed), "--path", output], check=True, stdout=sys.stderr)
        return json.loads((output / "summary.json").read_text())


def reaches_the_goal(row: dict) -> bool:
    """Say whether one seed's summary meets the goal."""
    rise = row["final_reward"] - row["baseline_reward"]
    return row["seconds"] <= MAX_SECONDS and row["final_reward"] >= MIN_REWARD and rise >= MIN_RISE


if __name__ == "__main__":
    main()
