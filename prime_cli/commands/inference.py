"""`prime inference`: serve a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Serve a model folder behind an OpenAI-compatible API.")


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="A model folder in Hugging Face layout.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    model_name: Annotated[str, typer.Option(help="Name to answer to; the folder's by default.")] = "",
    num_slots: Annotated[int, typer.Option(help="Requests that run at once; more wait.", min=1)] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    ready_file: Annotated[Path | None, typer.Option(help="Write {url, pid} here once it answers.")] = None,
) -> None:
    """Serve FOLDER on loopback: /v1/models and /v1/chat/completions. Ctrl-C stops it."""
    from prime_cli.models.folder import check_model_folder

    check_model_folder(folder)
    from prime_cli.rl.inference.server import serve as serve_folder

    serve_folder(
        folder, host=host, port=port, model_name=model_name or folder.resolve().name, num_slots=num_slots, seed=seed,
        ready_file=ready_file,
    )  # fmt: skip
