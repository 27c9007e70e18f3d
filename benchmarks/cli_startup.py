"""Wall time of `prime --version` and `prime --help` beside a bare `import typer`, in one run.

    python benchmarks/cli_startup.py [--json] [--check]

Goal (docs/SPECIFICATION.md): `prime --help` takes at most 1.5 times as long as `python -c "import typer"`.
The three commands are run in turn, so that a busy moment of the machine hits all of them; the median is compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL_RATIO = 1.5
ROUNDS = 25


def measure() -> dict[str, float]:
    """Return the median wall time of each command in milliseconds."""
    prime = str(Path(sys.executable).with_name("prime"))
    commands = {
        "python -c 'import typer'": [sys.executable, "-c", "import typer"],
        "prime --version": [prime, "--version"],
        "prime --help": [prime, "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for round_number in range(ROUNDS + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if round_number:  # the first round fills the caches
                times[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the table; with --check exit 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    medians = measure()
    base = medians["python -c 'import typer'"]
    ratio = medians["prime --help"] / base
    if options.json:
        print(json.dumps({"median_ms": medians, "help_ratio": ratio, "goal_ratio": GOAL_RATIO}, indent=2))
    else:
        for name, value in medians.items():
            print(f"{name:28} {value:7.1f} ms   {value / base:5.2f} x")
        print(f"goal: prime --help at most {GOAL_RATIO} x; here {ratio:.2f} x")
    if options.check and ratio > GOAL_RATIO:
        sys.exit(1)


if __name__ == "__main__":
    main()
