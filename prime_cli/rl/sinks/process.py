"""The process of one sink: reads the run's metrics until its standard input ends, and with that the run.

python -m prime_cli.rl.sinks.process RUN_DIRECTORY wandb|tensorboard
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from prime_cli.core.processes import die_with_parent
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.sinks.config import WandbConfig
from prime_cli.rl.sinks.sink import Sink, feed


def open_sink(name: str, run: RunDirectory) -> Sink:
    """Return the sink `name` as the run's configuration describes it."""
    config = json.loads(run.config.read_text())
    if name == "wandb":
        from prime_cli.rl.sinks.wandb_sink import WandbSink

        return WandbSink(run, WandbConfig.model_validate(config["wandb"]), config)
    from prime_cli.rl.sinks.tensorboard_sink import TensorboardSink

    return TensorboardSink(run.tensorboard)


def main(arguments: list[str] | None = None) -> None:
    """Feed the sink to the end of the run."""
    parser = argparse.ArgumentParser(description="Send the figures of a run to a sink.")
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("sink", choices=("wandb", "tensorboard"))
    options = parser.parse_args(arguments)
    die_with_parent()
    ended = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(ended,), daemon=True).start()
    run = RunDirectory(options.run_directory)
    feed(run, options.sink, open_sink(options.sink, run), ended=ended.is_set)


def _wait_for_the_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
