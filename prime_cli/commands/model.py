"""`prime model`: make small models locally."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Make small models locally, without a hub of weights.")


@app.command()
def init(
    preset: Annotated[str, typer.Argument(help="tiny-qwen3 (0.4 M parameters) or small-qwen3 (3 M).")],
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there.")] = False,
) -> None:
    """Write a Qwen3-architecture model with random weights, in Hugging Face layout."""
    from dataclasses import asdict

    from prime_cli.core.output import print_result
    from prime_cli.models.tiny_qwen3 import write_model

    written = write_model(preset, folder, seed=seed, force=force)
    print_result(
        {**asdict(written), "path": str(written.path)},
        f"{written.preset} with {written.parameters:,} parameters (seed {written.seed}) written to {written.path}",
    )
