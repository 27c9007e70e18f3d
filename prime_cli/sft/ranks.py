"""Fine-tuning in several processes: torchrun's machinery starts the ranks, and this process watches them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from prime_cli.core.errors import ConfigError, ProcessDied
from prime_cli.core.processes import (
    child_environment,
    describe_exit,
    end_process_groups,
    tail,
    terminate_as_interrupt,
)
from prime_cli.rl.plan import check_devices, count_gpus
from prime_cli.rl.run_directory import RunDirectory, read_metrics
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.training import Observe

_POLL_S = 0.1
_GRACE_S = 5.0
_NAME = "trainer"


def train_in_several_processes(
    config: SFTConfig, run: RunDirectory, observe: Observe, say: Callable[[str], None]
) -> None:
    """Run the ranks until the last step.

    Raises:
        ConfigError: there are GPUs, and fewer than ranks; or a rank found that the data cannot be used.
        ProcessDied: a rank ended before its work was done; carries the last lines of its log.
    """
    check_devices(config.trainer.ranks, count_gpus())
    command = [
        sys.executable, "-m", "prime_cli.rl.trainer.launch", str(run.path), "--module", "prime_cli.sft.process",
    ]  # fmt: skip
    with terminate_as_interrupt(), run.log(_NAME).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1"),
            start_new_session=True,
        )
        try:
            _watch(process, run, observe, say)
        finally:
            end_process_groups([process], grace_s=_GRACE_S)


def _watch(process: subprocess.Popen[bytes], run: RunDirectory, observe: Observe, say: Callable[[str], None]) -> None:
    offset, said = 0, ""
    while True:
        code = process.poll()
        records, offset = read_metrics(run.metrics, after_byte=offset)
        for record in records:
            observe(record)
        status = run.read_status(_NAME)
        if status is not None and status[0] != said:
            said = status[0]
            say(said)
        if code == 0:
            return
        if code is not None:
            raise _death(run, code)
        time.sleep(_POLL_S)


def _death(run: RunDirectory, code: int) -> Exception:
    own = run.read_failure(_NAME)
    if own is not None:
        return ConfigError(*own)
    lines = "\n".join(f"  {line}" for line in tail(run.log(_NAME))) or "  (it wrote nothing)"
    return ProcessDied(f"a rank of the trainer died ({describe_exit(code)}); the last lines of their log:\n{lines}")
