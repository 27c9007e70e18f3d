"""The trainer process: waits for batch s, takes a step, hands on the weights of version s, and so on to the end."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

import torch

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import die_with_parent
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.config import RLConfig
from prime_cli.rl.heartbeat import start_heartbeat
from prime_cli.rl.last_words import last_words
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.trainer.broadcasting import broadcast_of
from prime_cli.rl.trainer.keeper import Keeper
from prime_cli.rl.trainer.learner import Learner, StepReport
from prime_cli.rl.trainer.ranks import Ranks, device_of_this_rank, joined, leave_cleanly, suffix_of_this_rank
from prime_cli.rl.trainer.token_export import TokenExport
from prime_cli.rl.transport import Batch, read_batch

_POLL_S = 0.005


class TrainerProcess:
    """The loop of one trainer over the batches of a run directory."""

    def __init__(self, run: RunDirectory, config: RLConfig, ranks: Ranks) -> None:
        self._run = run
        self._config = config
        self._ranks = ranks
        self._say("loading the model")
        torch.set_num_threads(int(os.environ.get("PRIME_TORCH_THREADS", "1")))
        torch.manual_seed(config.seed)
        self._tokenizer = load_tokenizer(config.model)
        self._learner = Learner(
            load_causal_model(config.model, device=device_of_this_rank()),
            config=config.trainer,
            loss=config.trainer.loss,
            learning_rate=config.learning_rate,
            total_steps=config.max_steps,
            ranks=ranks,
        )
        self._broadcast = broadcast_of(config, run, self._learner, ranks)
        self._attempt = run.read_attempt()
        self._keeper = Keeper(run, config, self._learner, self._tokenizer, ranks)

    def train(self) -> None:
        """Train up to step `max_steps`, from where this attempt begins; the last step is kept whatever was asked."""
        self._begin()
        for step in range(self._attempt.steps_done + 1, self._config.max_steps + 1):
            batch, waited_s = self._wait_for_batch(step)
            beside = self._run.state_beside_batch(step)
            self._say(f"training step {step}")
            started = time.perf_counter()
            report = self._take_step(batch)
            trained_s = time.perf_counter() - started
            started = time.perf_counter()
            self._hand_on(step)
            broadcast_s = time.perf_counter() - started
            if self._ranks.is_first:  # the step above needed all ranks, so all have read the batch
                shutil.rmtree(self._run.batch(step))
                self._run.append_metrics(step, "trainer", _metrics(report, waited_s, trained_s, broadcast_s))
                print(  # noqa: T201 - the log of this process
                    f"step {step} loss {report.loss:+.4f} grad norm {report.grad_norm:.3f} "
                    f"mismatch {report.mismatch_kl:.2e} tokens {report.tokens} waited {waited_s:.2f} s",
                    flush=True,
                )
            self._keeper.keep(step, beside, self._say)
        self._say("done")

    def _begin(self) -> None:
        """Take up the checkpoint that this attempt begins with, if any, and hand its weights to the server."""
        start = self._attempt.start
        if start is None:
            return
        self._say(f"reading the checkpoint of step {start.step}")
        if start.weights_only:
            self._learner.warm_start(Path(start.checkpoint))
        else:
            self._learner.restore(Path(start.checkpoint))
        self._broadcast(self._attempt.steps_done)

    def _take_step(self, batch: Batch) -> StepReport:
        interval = self._config.trainer.token_export_interval
        if not interval or batch.step % interval:
            return self._learner.step(batch.samples)
        export = TokenExport(batch.step, self._ranks.rank, batch.facts.get("origins", ()))
        report = self._learner.step(batch.samples, export)
        export.write(self._run.token_export(batch.step, self._ranks.rank))
        return report

    def _say(self, doing: str) -> None:
        if self._ranks.is_first:
            self._run.set_status("trainer", doing)

    def _wait_for_batch(self, step: int) -> tuple[Batch, float]:
        self._say(f"waiting for batch {step}")
        folder = self._run.batch(step)
        started = time.perf_counter()
        limit = self._config.trainer.batch_timeout_s
        while not folder.exists():
            if time.perf_counter() - started > limit:
                raise PrimeError(
                    f"the trainer waited {limit:.0f} s for batch {step} and got none",
                    hint="look at the orchestrator's log; raise trainer.batch_timeout_s if rollouts take this long",
                )
            time.sleep(_POLL_S)
        return read_batch(folder), time.perf_counter() - started

    def _hand_on(self, version: int) -> None:
        """Hand the weights on as `version`; the folder's name appears when its content is complete."""
        self._broadcast(version)
        if self._ranks.is_first:
            # The trainer may be this many versions ahead of the one that is being loaded at this moment.
            self._run.drop_broadcasts_before(version - self._config.orchestrator.max_off_policy_steps - 1)


def _metrics(report: StepReport, waited_s: float, trained_s: float, broadcast_s: float) -> dict[str, float | int]:
    step_s = waited_s + trained_s + broadcast_s
    return {
        "loss/mean": report.loss,
        "entropy/mean": report.entropy,
        "mismatch_kl/mean": report.mismatch_kl,
        "mismatch_kl/max": report.mismatch_kl_max,
        "ratio/mean": report.ratio,
        "is_masked": report.masked_share,
        "ref_kl/mean": report.ref_kl,
        "optim/grad_norm": report.grad_norm,
        "optim/lr": report.learning_rate,
        "progress/tokens": report.tokens,
        "progress/loss_tokens": report.loss_tokens,
        "perf/throughput": report.tokens / step_s if step_s else 0.0,
        "time/step": step_s,
        "time/wait_for_batch": waited_s,
        "time/forward_backward": trained_s,
        "time/broadcast_weights": broadcast_s,
    }


def main(arguments: list[str] | None = None) -> None:
    """Entry of `python -m prime_cli.rl.trainer.process RUN_DIRECTORY`."""
    parser = argparse.ArgumentParser(description="Train on the batches of a run directory.")
    parser.add_argument("run_directory", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    start_heartbeat(suffix_of_this_rank())
    run = RunDirectory(options.run_directory)
    with last_words(run, "trainer"), joined() as ranks:
        TrainerProcess(run, RLConfig.model_validate_json(run.config.read_text()), ranks).train()
    leave_cleanly()


if __name__ == "__main__":
    main()
