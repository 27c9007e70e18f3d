"""A supervised fine-tuning run, in this process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from prime_cli.core.errors import ConfigError
from prime_cli.core.files import write_json_atomically
from prime_cli.models.folder import check_model_folder, load_causal_model, load_tokenizer
from prime_cli.rl.run_directory import SFT_FOLDERS, RunDirectory, create_run_directory
from prime_cli.rl.step_config import LossConfig
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.transport import Sample
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.data import batches_forever, load_conversations, render_samples

Observer = Callable[[int, float, float | None, float], None]
"""Called after each step with its number, loss per token, validation loss when measured, and tokens per second."""


@dataclass(frozen=True)
class SFTSummary:
    """How a finished run went; losses are nats per assistant token."""

    path: Path
    weights: Path
    steps: int
    loss: float
    validation_loss: float | None
    seconds: float


def run_sft(config: SFTConfig, observe: Observer, say: Callable[[str], None]) -> SFTSummary:
    """Fine-tune `config.model` on the configured demonstrations; `say` hears what is going on before the first step.

    Raises:
        NotAModel: the configured model is not a model folder.
        ConfigError: the data cannot be used.
    """
    check_model_folder(config.model)
    name = config.name or f"{config.model.resolve().name}-sft"
    run = create_run_directory(config.output_dir, name, config.model_dump(mode="json"), folders=SFT_FOLDERS)
    say(f"run: {run.path}" + (f" ({name} is taken)" if run.path.name != name else ""))
    try:
        return _train(config, run, observe, say)
    except BaseException:
        # Without weights there is nothing in the folder that anybody would look for, and its name is wanted again.
        if not run.exported_steps():
            shutil.rmtree(run.path)
        raise


def _train(config: SFTConfig, run: RunDirectory, observe: Observer, say: Callable[[str], None]) -> SFTSummary:
    started = time.monotonic()
    training, validation, learner, tokenizer = _prepare(config, run, say)
    batches = batches_forever(training, config.batch_size, config.seed)
    loss, validation_loss = 0.0, None
    for step in range(1, config.max_steps + 1):
        step_started = time.perf_counter()
        report = learner.step(next(batches))
        loss = report.loss
        throughput = report.tokens / (time.perf_counter() - step_started)
        measured = None
        if validation and (step % config.validation_interval == 0 or step == config.max_steps):
            measured = validation_loss = learner.evaluate(validation)
        _record(run, step, loss, measured, throughput, report.learning_rate, report.grad_norm)
        observe(step, loss, measured, throughput)
        if step == config.max_steps or (config.checkpoints.interval and step % config.checkpoints.interval == 0):
            learner.export(tokenizer, run.weights(step), run.adapter(step))
    weights = run.weights(config.max_steps)
    summary = SFTSummary(run.path, weights, config.max_steps, loss, validation_loss, time.monotonic() - started)
    write_json_atomically(run.summary, {**asdict(summary), "path": str(run.path), "weights": str(weights)})
    return summary


def _prepare(
    config: SFTConfig, run: RunDirectory, say: Callable[[str], None]
) -> tuple[list[Sample], list[Sample], Learner, object]:
    """Return the samples to train on, those to validate on, the learner and the tokenizer."""
    say("reading the demonstrations")
    conversations = load_conversations(config.data, log_directory=run.path / "logs", note=say)
    held_out = config.data.num_validation
    if len(conversations) <= held_out:
        raise ConfigError(
            f"{len(conversations)} demonstrations leave none to train on after {held_out} for validation",
            hint="lower data.num_validation, or give more demonstrations",
        )
    say(f"{len(conversations):,} demonstrations; loading the model")
    learner, tokenizer = _learner(config)
    samples = render_samples(conversations, tokenizer, seq_len=config.trainer.seq_len)
    return samples[held_out:], samples[:held_out], learner, tokenizer


def _learner(config: SFTConfig) -> tuple[Learner, object]:
    import torch

    torch.set_num_threads(int(os.environ.get("PRIME_TORCH_THREADS", "1")))
    torch.manual_seed(config.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(config.model)
    learner = Learner(
        load_causal_model(config.model, device=device),
        config=config.trainer,
        loss=LossConfig(),
        learning_rate=config.learning_rate,
        total_steps=config.max_steps,
    )
    return learner, tokenizer


def _record(
    run: RunDirectory, step: int, loss: float, validation: float | None, throughput: float, rate: float, norm: float
) -> None:
    values: dict[str, float | int] = {
        "loss/mean": loss, "perf/throughput": throughput, "optim/lr": rate, "optim/grad_norm": norm,
    }  # fmt: skip
    if validation is not None:
        values["val/loss"] = validation
    run.append_metrics(step, "sft", values)
