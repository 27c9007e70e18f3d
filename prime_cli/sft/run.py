"""A supervised fine-tuning run: its folder, and its training, in this process or in several."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from prime_cli.core.files import write_json_atomically
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.run_directory import SFT_FOLDERS, RunDirectory, create_run_directory, read_metrics
from prime_cli.rl.sinks.beside import check_sinks, sinks_beside
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.ranks import train_in_several_processes
from prime_cli.sft.training import Observe, Training


@dataclass(frozen=True)
class SFTSummary:
    """How a finished run went; losses are nats per token that is learnt."""

    path: Path
    weights: Path
    steps: int
    loss: float
    validation_loss: float | None
    seconds: float


def run_sft(config: SFTConfig, observe: Observe, say: Callable[[str], None]) -> SFTSummary:
    """Fine-tune `config.model` on the configured demonstrations; `say` hears what is going on before the first step.

    Raises:
        NotAModel: the configured model is not a model folder.
        ConfigError: the data or a sink cannot be used, or there are fewer GPUs than ranks.
        ProcessDied: one of several ranks ended before the work was done.
    """
    check_model_folder(config.model)
    sinks = check_sinks(config.wandb, config.tensorboard)
    name = config.name or f"{config.model.resolve().name}-sft"
    resolved = config.model_copy(update={"model": config.model.resolve()})
    run = create_run_directory(config.output_dir, name, resolved.model_dump(mode="json"), folders=SFT_FOLDERS)
    say(f"run: {run.path}" + (f" ({name} is taken)" if run.path.name != name else ""))
    started = time.monotonic()
    try:
        with sinks_beside(run, sinks, say):
            _train(resolved, run, observe, say)
    except BaseException:
        # Without weights there is nothing in the folder that anybody would look for, and its name is wanted again.
        if not run.exported_steps():
            shutil.rmtree(run.path)
        raise
    summary = _summary(run, time.monotonic() - started)
    write_json_atomically(run.summary, {**asdict(summary), "path": str(run.path), "weights": str(summary.weights)})
    return summary


def _train(config: SFTConfig, run: RunDirectory, observe: Observe, say: Callable[[str], None]) -> None:
    if config.trainer.ranks > 1:
        train_in_several_processes(config, run, observe, say)
        return
    from prime_cli.rl.trainer.ranks import Ranks

    Training(config, run, ranks=Ranks(), say=say, observe=observe).train()


def _summary(run: RunDirectory, seconds: float) -> SFTSummary:
    records, _ = read_metrics(run.metrics)
    steps = [record for record in records if record["source"] == "sft" and "loss/mean" in record]
    measured = [float(record["val/loss"]) for record in records if "val/loss" in record]
    step = int(steps[-1]["step"])
    validation = measured[-1] if measured else None
    return SFTSummary(run.path, run.weights(step), step, float(steps[-1]["loss/mean"]), validation, seconds)
