"""The training itself, on one rank: demonstrations in, steps, validation, weights out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from prime_cli.core.files import directory_written_aside
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.step_config import LossConfig
from prime_cli.rl.trainer.learner import Learner, StepReport
from prime_cli.rl.trainer.ranks import Ranks, device_of_this_rank
from prime_cli.rl.transport import Sample
from prime_cli.sft.batches import Batches
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.demonstrations import Demonstrations, read_conversations, render_conversations


class Training:
    """A run of supervised fine-tuning, as one of its ranks sees it.

    Args:
        say: hears what is going on, on the first rank.
        after_step: called after every step, on every rank.

    Raises:
        ConfigError: the demonstrations cannot be used.
        NotAModel: the configured model cannot be loaded.
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

    def train(self) -> None:
        """Take all steps, and export the last weights."""
        config = self._config
        if config.val.eval_on_start and self._validation:
            self._record(0, {"val/loss": self._learner.evaluate(self._validation)})
        for step in range(1, config.max_steps + 1):
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
            if is_last or (config.checkpoints.interval and step % config.checkpoints.interval == 0):
                self._learner.export(self._tokenizer, self._run.weights(step), self._run.adapter(step))

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
