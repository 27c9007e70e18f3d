"""Starts the ranks of the trainer by torchrun's own machinery, and ends with the launcher that started it.

    python -m prime_cli.rl.trainer.launch RUN_DIRECTORY

A rank that dies ends the others; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from prime_cli.core.processes import child_environment, die_with_parent
from prime_cli.rl.heartbeat import start_heartbeat
from prime_cli.rl.run_directory import RunDirectory

_RANK_MODULE = "prime_cli.rl.trainer.process"


def main(arguments: list[str] | None = None) -> None:
    """Run as many ranks as the run's configuration says, on this machine, until all have ended."""
    parser = argparse.ArgumentParser(description="Train on the batches of a run directory, in several processes.")
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--module", default=_RANK_MODULE, help="what each rank runs")
    options = parser.parse_args(arguments)
    die_with_parent()
    start_heartbeat(keep_for_children=True)
    os.environ.update(child_environment())  # the ranks die with this process as it dies with the launcher
    config = json.loads(RunDirectory(options.run_directory).config.read_text())
    ranks = int(config["trainer"]["ranks"])
    from torch.distributed import run

    run.main(["--standalone", "--nproc-per-node", str(ranks), "-m", options.module, str(options.run_directory)])


if __name__ == "__main__":
    main()
