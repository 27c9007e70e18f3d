"""From what a user asked for to a finished evaluation: finds everything, starts what is needed, runs, tidies up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import terminate_as_interrupt
from prime_cli.environments.target import EnvironmentTarget, find_target
from prime_cli.evals.endpoints import ChosenModel, ModelChoice, choose_model, opened_model
from prime_cli.evals.record import Observer
from prime_cli.evals.run import run_evaluation
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory, new_eval_directory, outputs_root, remove_if_empty
from prime_cli.evals.summary import EvalSummary


@dataclass(frozen=True)
class EvalRequest:
    """An evaluation as asked for.

    `given` holds those fields of `EvalSettings` that the user chose; the others come from the evaluation that is
    resumed, else from the environment, else from the defaults.
    """

    environment: str
    model: ModelChoice
    given: Mapping[str, Any]
    max_concurrent: int = 32
    num_workers: int = 1
    retry_errors: bool = False
    output_dir: Path | None = None
    resume: Path | None = None


def launch_evaluation(
    request: EvalRequest, *, observe: Observer, note: Callable[[str], None], stopped: Callable[[Path], None]
) -> EvalSummary:
    """Run the evaluation and return what came out.

    `stopped` is told the folder when an interrupt ends it early. A folder that was made for nothing is removed.

    Raises:
        PrimeError: the environment, the model, the settings or the results' folder cannot be used; says which.
        KeyboardInterrupt: after everything that was started has ended.
    """
    saved = EvalDirectory(request.resume).read_metadata() if request.resume is not None else {}
    target = find_target(request.environment, note)
    chosen = choose_model(request.model)
    settings = _settings(request, target, chosen, saved)
    if request.resume is not None:
        settings.check_resumes(saved)
        directory = EvalDirectory(request.resume)
    else:
        root = outputs_root(target.identity.module, request.output_dir)
        directory = new_eval_directory(root, target.identity.name, chosen.label)
    try:
        if chosen.folder is not None:
            note(f"serving {chosen.folder}")
        with opened_model(chosen, log_path=directory.path / "logs" / "inference.log") as endpoints:
            note(f"loading the environment {target.identity}")
            with terminate_as_interrupt():
                return asyncio.run(
                    run_evaluation(
                        settings,
                        endpoints,
                        directory,
                        observe,
                        python=target.python,
                        search_path=target.search_path,
                        note=note,
                    )
                )
    except (KeyboardInterrupt, PrimeError) as reason:
        if request.resume is None:
            remove_if_empty(directory)
        if isinstance(reason, KeyboardInterrupt) and directory.path.exists():
            stopped(directory.path)
        raise


def _settings(
    request: EvalRequest, target: EnvironmentTarget, chosen: ChosenModel, saved: Mapping[str, Any]
) -> EvalSettings:
    defaults: dict[str, Any] = {
        "num_examples": target.defaults.num_examples,
        "rollouts_per_example": target.defaults.rollouts_per_example,
    }
    if saved:
        names = ("num_examples", "rollouts_per_example", "env_args", "sampling_args", "split")
        defaults |= {name: saved[name] for name in names if name in saved}
        defaults |= {"seed": saved.get("shuffle_seed"), "state_columns": tuple(saved.get("state_columns") or ())}
    return EvalSettings(
        environment=target.identity,
        model=chosen.label,
        max_concurrent=request.max_concurrent,
        num_workers=request.num_workers,
        retry_errors=request.retry_errors,
        **defaults | dict(request.given),
    )
