"""The tables that ask for sinks."""

from __future__ import annotations

from pydantic import Field

from prime_cli.core.config_file import StrictModel


class WandbConfig(StrictModel):
    """Figures to Weights & Biases (the extra `wandb`), under the names of docs/metrics.md.

    `name` is that of the run's folder when left out. WANDB_API_KEY is taken from the environment, from `env_files`, or
    from ~/.netrc, where `wandb login` puts it. With `offline` everything stays in the run's folder for `wandb sync`.
    """

    entity: str | None = None
    project: str = "prime"
    name: str | None = None
    group: str | None = None
    tags: list[str] = Field(default_factory=list)
    offline: bool = False


class TensorboardConfig(StrictModel):
    """Figures as event files for TensorBoard (the extra `tensorboard`), in `tensorboard/` of the run's folder."""
