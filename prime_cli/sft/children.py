"""The processes that a fine-tuning run starts and watches: its ranks, where there are several, and its evaluator."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prime_cli.core.processes import child_environment
from prime_cli.rl.deaths import check_life, death_of
from prime_cli.rl.family import Family, Member
from prime_cli.rl.heartbeat import watched_as
from prime_cli.rl.run_directory import RunDirectory, read_metrics
from prime_cli.sft.config import SFTConfig

EVALUATOR, TRAINER = "evaluator", "trainer"
_POLL_S = 0.1

Observe = Callable[[Mapping[str, Any]], None]
"""Called with each record as it stands in metrics.jsonl."""


class Children:
    """The processes that a run has started, and what they have to tell.

    Args:
        observe: sees every record that anybody has written since the last look.
        say: hears what the ranks are doing.
    """

    def __init__(self, config: SFTConfig, run: RunDirectory, observe: Observe, say: Callable[[str], None]) -> None:
        startup_timeout_s = 300.0 if config.eval is None else config.eval.startup_timeout_s
        self.family = Family(run, timeout_s=config.watchdog.timeout_s, startup_timeout_s=startup_timeout_s)
        self._timeout_s = config.watchdog.timeout_s
        self._run = run
        self._observe = observe
        self._say = say
        self._said = ""
        self._offset = run.metrics.stat().st_size if run.metrics.exists() else 0

    def start(self, name: str, module: str, arguments: Sequence[str] = ()) -> None:
        """Start `python -m module RUN ARGUMENTS`, as the leader of its own process group."""
        watched = watched_as(self._run, name, self._timeout_s)
        with self._run.log(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(self._run.path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1", **watched),
                start_new_session=True,
            )
        self.family.add(Member(name, process))

    def look(self) -> None:
        """Pass on what is new.

        Raises:
            ProcessDied: a process has ended before its work was done, or shows no sign of life.
        """
        self._tell()
        for member in self.family.members:
            code = member.process.poll()
            if code:
                raise death_of(self._run, member, code)
        check_life(self._run, self.family)

    def wait(self) -> None:
        """Wait until all have ended, passing on what is new; see `look`."""
        while any(member.process.poll() is None for member in self.family.members):
            self.look()
            time.sleep(_POLL_S)
        self.look()

    def _tell(self) -> None:
        records, self._offset = read_metrics(self._run.metrics, after_byte=self._offset)
        for record in records:
            self._observe(record)
        status = self._run.read_status(TRAINER)
        if status is not None and status[0] != self._said:
            self._said = status[0]
            self._say(self._said)
