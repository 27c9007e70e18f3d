"""Keeps what the configuration asks for after a step: checkpoints, weights, adapters; removes what is superseded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prime_cli.core.files import remove_directory_at_once
from prime_cli.rl.checkpoint import write_checkpoint
from prime_cli.rl.checkpoint_config import AdaptersConfig, CheckpointsConfig, steps_to_drop
from prime_cli.rl.run_directory import RunDirectory, read_metrics
from prime_cli.rl.step_config import StepConfig
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.trainer.ranks import Ranks


class KeepingConfig(Protocol):
    """What says what is kept."""

    @property
    def max_steps(self) -> int:
        """The last step, which is kept in any case."""

    @property
    def checkpoints(self) -> CheckpointsConfig:
        """Of which steps the whole state is kept."""

    @property
    def adapters(self) -> AdaptersConfig:
        """Of which steps the adapters are."""

    @property
    def trainer(self) -> StepConfig:
        """Whether adapters are trained."""


class Keeper:
    """Decides after each step what of it is kept. With several ranks all of them call it; the first one writes."""

    def __init__(
        self, run: RunDirectory, config: KeepingConfig, learner: Learner, tokenizer: Any, ranks: Ranks
    ) -> None:
        self._run = run
        self._config = config
        self._learner = learner
        self._tokenizer = tokenizer
        self._ranks = ranks

    def keep(self, step: int, beside: Mapping[str, bytes], say: Callable[[str], None]) -> None:
        """Keep of `step` what is due.

        Args:
            beside: what other processes keep of the same step, by file name.
        """
        last = step == self._config.max_steps
        adapters = self._config.adapters
        if last or _is_due(step, self._config.checkpoints.interval):
            say(f"exporting the weights of step {step}")
            self._learner.export(self._tokenizer, self._run.weights(step), self._run.adapter(step))
            say(f"writing the checkpoint of step {step}")
            state = self._learner.state()
            if self._ranks.is_first:
                # The checkpoint comes last: where it is, the weights and the adapter of its step are too.
                write_checkpoint(self._run.checkpoint(step), state, step=step, beside=beside)
                self._drop_superseded()
        elif self._config.trainer.lora is not None and _is_due(step, adapters.interval):
            say(f"exporting the adapter of step {step}")
            self._learner.export_adapter(self._run.adapter(step))
        if self._ranks.is_first and adapters.keep_last:
            for old in steps_to_drop(self._run.adapter_steps(), keep_last=adapters.keep_last):
                remove_directory_at_once(self._run.adapter(old))

    def _drop_superseded(self) -> None:
        config = self._config.checkpoints
        steps = self._run.checkpoint_steps()
        best = None if config.keep_best is None else best_step(self._run, config.keep_best, steps)
        dropped = steps_to_drop(steps, keep_last=config.keep_last, keep_interval=config.keep_interval, best=best)
        for old in dropped:
            remove_directory_at_once(self._run.checkpoint(old))
            if self._run.weights(old).exists():
                remove_directory_at_once(self._run.weights(old))


def best_step(run: RunDirectory, figure: str, steps: list[int]) -> int | None:
    """Return which of `steps` has the highest value of `figure`, the latest of equals, or None where none has it."""
    records, _ = read_metrics(run.metrics)
    values = {int(record["step"]): float(record[figure]) for record in records if figure in record}
    known = [step for step in steps if step in values]
    return max(known, key=lambda step: (values[step], step), default=None)


def _is_due(step: int, interval: int) -> bool:
    return bool(interval) and step % interval == 0
