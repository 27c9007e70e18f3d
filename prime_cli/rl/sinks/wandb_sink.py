"""Figures to Weights & Biases."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from prime_cli.core.files import write_text_atomically
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.sinks.config import WandbConfig


class WandbSink:
    """One W&B run per run folder: a run that is resumed goes on in the same one.

    Orchestrator and trainer write their figures of a step at different times, so `step` is a figure itself, and the
    horizontal axis of all the others.
    """

    def __init__(self, run: RunDirectory, settings: WandbConfig, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            entity=settings.entity,
            project=settings.project,
            name=settings.name or run.path.name,
            group=settings.group,
            tags=settings.tags or None,
            mode="offline" if settings.offline else "online",
            id=_id_of(run),
            resume="allow",
            dir=str(run.path),
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, figures: Mapping[str, float | int], at: float) -> None:
        """Log the figures of one process."""
        self._run.log({**figures, "step": step})

    def close(self) -> None:
        """Wait until all has been sent."""
        self._run.finish()


def _id_of(run: RunDirectory) -> str:
    """Return the id of this folder's W&B run; it is the folder's for good, whatever the run is called."""
    if not run.wandb_id.exists():
        write_text_atomically(run.wandb_id, secrets.token_hex(8))
    return run.wandb_id.read_text().strip()
