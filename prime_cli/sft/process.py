"""One rank of a supervised fine-tuning run that trains in several processes.

python -m prime_cli.sft.process RUN_DIRECTORY
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prime_cli.core.processes import die_with_parent
from prime_cli.rl.heartbeat import start_heartbeat
from prime_cli.rl.last_words import last_words
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.trainer.ranks import joined, leave_cleanly, suffix_of_this_rank
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.training import Training


def main(arguments: list[str] | None = None) -> None:
    """Train on this rank until the last step."""
    parser = argparse.ArgumentParser(description="Fine-tune, as one of several ranks.")
    parser.add_argument("run_directory", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    start_heartbeat(suffix_of_this_rank())
    run = RunDirectory(options.run_directory)
    config = SFTConfig.model_validate_json(run.config.read_text())
    with last_words(run, "trainer"), joined() as ranks:
        # What is said to be going on is shown by the process that started this one.
        Training(config, run, ranks=ranks, say=lambda text: run.set_status("trainer", text)).train()
    leave_cleanly()


if __name__ == "__main__":
    main()
