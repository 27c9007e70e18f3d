"""A supervised fine-tuning run: its folder, and its training, in this process or in several."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from prime_cli.core.errors import PrimeError, ProcessDied
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import terminate_as_interrupt
from prime_cli.environments.target import find_target
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.deaths import GaveUp
from prime_cli.rl.heartbeat import LAUNCHER, Heartbeat
from prime_cli.rl.plan import check_devices, count_gpus
from prime_cli.rl.resume import how_to_go_on, open_run_directory
from prime_cli.rl.run_directory import SFT_FOLDERS, RunDirectory, read_metrics
from prime_cli.rl.sinks.beside import check_sinks, sinks_beside
from prime_cli.sft.children import EVALUATOR, TRAINER, Children, Observe
from prime_cli.sft.config import SFTConfig

_GRACE_S = 5.0


@dataclass(frozen=True)
class SFTSummary:
    """How a finished run went; losses are nats per token that is learnt."""

    path: Path
    weights: Path
    steps: int
    loss: float
    validation_loss: float | None
    seconds: float


def run_sft(
    config: SFTConfig, observe: Observe, say: Callable[[str], None], *, resume: str | None = None
) -> SFTSummary:
    """Fine-tune `config.model` on the configured demonstrations; `say` hears what is going on before the first step.

    Args:
        resume: what to go on with: see `prime_cli.rl.resume`.

    Raises:
        BadInput: there is no run or checkpoint such as `resume` names, or the run is going on.
        BadCheckpoint: the checkpoint is torn.
        NotAModel: the configured model is not a model folder.
        ConfigError: the data or a sink cannot be used, or there are fewer GPUs than ranks.
        ProcessDied: one of several ranks, or the evaluator, ended before the work was done.
    """
    check_model_folder(config.model)
    check_devices(config.trainer.ranks, count_gpus() if config.trainer.ranks > 1 else 0)
    for environment in [] if config.eval is None else config.eval.env:
        find_target(environment.reference, say)
    sinks = check_sinks(config.wandb, config.tensorboard)
    name = config.name or f"{config.model.resolve().name}-sft"
    resolved = config.model_copy(update={"model": config.model.resolve()})
    run, lock = open_run_directory(resolved, name, resume, say, folders=SFT_FOLDERS)
    started = time.monotonic()
    children = Children(resolved, run, observe, say)
    run.forget_life()
    heartbeat = Heartbeat(run, LAUNCHER)
    with terminate_as_interrupt(), lock, children.family.paused_with_the_launcher():
        try:
            with sinks_beside(run, sinks, say):
                _train(resolved, run, children, say)
        except (PrimeError, KeyboardInterrupt) as error:
            children.family.end(_GRACE_S)
            heartbeat.stop()
            is_told = isinstance(error, GaveUp | KeyboardInterrupt) or not isinstance(error, ProcessDied)
            if is_told and not run.exported_steps():
                # Nobody looks for this folder, and its name is wanted again.
                shutil.rmtree(run.path)
            else:
                say(f"stopped; what there is lies in {run.path}; {how_to_go_on(run, command='prime sft run')}")
            raise
        finally:
            children.family.end(_GRACE_S)
            heartbeat.stop()
    run.drop_traffic()
    summary = _summary(run, time.monotonic() - started)
    write_json_atomically(run.summary, {**asdict(summary), "path": str(run.path), "weights": str(summary.weights)})
    return summary


def _train(config: SFTConfig, run: RunDirectory, children: Children, say: Callable[[str], None]) -> None:
    if config.eval is not None:
        children.start(EVALUATOR, "prime_cli.sft.evaluator")
    if config.trainer.ranks > 1:
        children.start(TRAINER, "prime_cli.rl.trainer.launch", ["--module", "prime_cli.sft.process"])
    else:
        from prime_cli.rl.trainer.ranks import Ranks
        from prime_cli.sft.training import Training

        Training(config, run, ranks=Ranks(), say=say, after_step=children.look).train()
        if config.eval is not None:
            say("waiting for the last evaluation")
    children.wait()


def _summary(run: RunDirectory, seconds: float) -> SFTSummary:
    records, _ = read_metrics(run.metrics)
    steps = [record for record in records if record["source"] == "sft" and "loss/mean" in record]
    measured = [float(record["val/loss"]) for record in records if "val/loss" in record]
    step = int(steps[-1]["step"])
    validation = measured[-1] if measured else None
    return SFTSummary(run.path, run.weights(step), step, float(steps[-1]["loss/mean"]), validation, seconds)
