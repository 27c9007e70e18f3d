"""The training itself, on one rank: demonstrations in, steps, validation, weights out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from prime_cli.core.files import directory_written_aside
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.checkpoint import BadCheckpoint
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.step_config import LossConfig
from prime_cli.rl.trainer.keeper import Keeper
from prime_cli.rl.trainer.learner import Learner, StepReport
from prime_cli.rl.trainer.ranks import Ranks, device_of_this_rank
from prime_cli.rl.transport import Sample
from prime_cli.sft.batches import Batches
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.demonstrations import Demonstrations, read_conversations, render_conversations

ORDER = "order.json"
"""The file of a checkpoint that says which demonstrations come next."""


class Training:
    """A run of supervised fine-tuning, as one of its ranks sees it.

    Args:
        say: hears what is going on, on the first rank.
        after_step: called after every step, on every rank.

    Raises:
        ConfigError: the demonstrations cannot be used.
        NotAModel: the configured model cannot be loaded.
        BadCheckpoint: the checkpoint that this attempt begins with is torn, or of another model.
    """

    def __init__(
        self,
        config: SFTConfig,
        run: RunDirectory,
        *,
        ranks: Ranks,
        say: Callable[[str], None],
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._run = run
        self._ranks = ranks
        self._evaluated = frozenset(config.eval_steps)
        self._say = say
        self._after_step = after_step
        torch.set_num_threads(int(os.environ.get("PRIME_TORCH_THREADS", "1")))
        torch.manual_seed(config.seed)
        self._tokenizer = load_tokenizer(config.model)
        self._data = self._demonstrations()
        self._batches = Batches(self._data.mixture(config.data, config.seed))
        self._lengths = [[len(one.token_ids) for one in source] for source in self._data.training]
        self._validation = [demonstration.sample() for demonstration in self._data.validation]
        self._learner = Learner(
            load_causal_model(config.model, device=device_of_this_rank()),
            config=config.trainer,
            loss=LossConfig(),
            learning_rate=config.learning_rate,
            total_steps=config.max_steps,
            ranks=ranks,
        )
        self._attempt = run.read_attempt()
        self._keeper = Keeper(run, config, self._learner, self._tokenizer, ranks)

    def train(self) -> None:
        """Take all steps from where this attempt begins; the last one is kept whatever was asked."""
        config = self._config
        self._begin()
        for step in range(self._attempt.steps_done + 1, config.max_steps + 1):
            started = time.perf_counter()
            batch = self._next_batch()
            report = self._learner.step(batch)
            figures = _figures(report, time.perf_counter() - started, self._batches.epochs)
            is_last = step == config.max_steps
            if self._validation and (is_last or step % config.val.interval == 0):
                figures["val/loss"] = self._learner.evaluate(self._validation)
            self._record(step, figures)
            if step in self._evaluated:
                self._broadcast(step)
            self._after_step()
            self._keeper.keep(step, {ORDER: json.dumps(self._batches.state()).encode()}, lambda doing: None)

    def _begin(self) -> None:
        """Take up the checkpoint that this attempt begins with, if any."""
        start, done = self._attempt.start, self._attempt.steps_done
        if start is not None and start.weights_only:
            self._learner.warm_start(Path(start.checkpoint))
        elif start is not None:
            self._learner.restore(Path(start.checkpoint))
            self._batches.go_on_from(_order_in(Path(start.checkpoint)))
            if done in self._evaluated:  # it may be that the last attempt did not come to evaluate it
                self._broadcast(done)
        if not done and self._config.val.eval_on_start and self._validation:
            self._record(0, {"val/loss": self._learner.evaluate(self._validation)})

    def _next_batch(self) -> list[Sample]:
        if self._config.batch_rows is None:
            chosen = self._batches.take(self._config.batch_size)
        else:
            chosen = self._batches.take_rows(self._config.batch_rows, self._config.trainer.seq_len, self._lengths)
        return [self._data.training[source][place].sample() for source, place in chosen]

    def _demonstrations(self) -> Demonstrations:
        """Read and render on the first rank, and hand that to the others."""
        parts: list[Demonstrations | None] = [None]
        if self._ranks.is_first:
            self._say("reading the demonstrations")
            read = read_conversations(self._config, log_directory=self._run.path / "logs", say=self._say)
            parts = [render_conversations(read, self._tokenizer, self._config, self._say)]
            self._say(f"{sum(map(len, read.training)):,} demonstrations; loading the model")
        if self._ranks.size > 1:
            dist.broadcast_object_list(parts, src=0, device=torch.device(device_of_this_rank()))
        (data,) = parts
        assert data is not None, "the first rank read them"
        return data

    def _broadcast(self, step: int) -> None:
        """Leave the weights for the evaluator; the folder appears when its content is complete."""
        tensors = self._learner.weights()
        if self._ranks.is_first:
            with directory_written_aside(self._run.broadcast(step)) as aside:
                save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})

    def _record(self, step: int, figures: dict[str, float | int]) -> None:
        if self._ranks.is_first:
            self._run.append_metrics(step, "sft", figures)


def _order_in(checkpoint: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((checkpoint / ORDER).read_text())
    except FileNotFoundError:
        raise BadCheckpoint(f"the checkpoint {checkpoint} is not of a fine-tuning run: it has no {ORDER}") from None
    return state


def _figures(report: StepReport, seconds: float, epochs: float) -> dict[str, float | int]:
    return {
        "loss/mean": report.loss,
        "entropy/mean": report.entropy,
        "optim/lr": report.learning_rate,
        "optim/grad_norm": report.grad_norm,
        "progress/tokens": report.tokens,
        "progress/loss_tokens": report.loss_tokens,
        "progress/epochs": epochs,
        "perf/throughput": report.tokens / seconds,
        "time/step": seconds,
    }
