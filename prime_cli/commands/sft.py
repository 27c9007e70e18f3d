"""`prime sft`: fine-tune on demonstrations."""

from __future__ import annotations

from typing import Annotated

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Fine-tune a model on demonstrations.")

_PLAIN_EVERY = 50


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Argument(help="A TOML file: model, [data], max_steps, ... More files: `@ FILE`. Keys: `--a.b VALUE`."),
    ],
    seed: Annotated[int | None, typer.Option(help="Overrides `seed` of the file.")] = None,
) -> None:
    """Train the model named in CONFIG on demonstrations, and write its weights in Hugging Face layout."""
    from dataclasses import asdict

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from prime_cli.core import output as out
    from prime_cli.core.config_layers import load_layers
    from prime_cli.sft.config import SFTConfig

    settings = load_layers([config, *context.args], SFTConfig)
    from prime_cli.sft.run import run_sft  # brings torch, which a file that cannot be read need not wait for

    if seed is not None:
        settings = settings.model_copy(update={"seed": seed})
    interactive = out.is_interactive()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out.stderr_console(), disable=not interactive) as progress:
        task = progress.add_task("training", total=settings.max_steps)

        def observe(step: int, loss: float, validation: float | None, throughput: float) -> None:
            text = f"loss {loss:.3f}" + (f" validation {validation:.3f}" if validation is not None else "")
            progress.update(task, completed=step, description=f"{text}  {throughput:,.0f} tokens/s")
            if not interactive and (step % _PLAIN_EVERY == 0 or step == settings.max_steps):
                out.note(f"step {step}/{settings.max_steps}  {text}  {throughput:,.0f} tokens/s")

        summary = run_sft(settings, observe, out.note)
    validation = "" if summary.validation_loss is None else f", validation loss {summary.validation_loss:.3f}"
    out.print_result(
        {**asdict(summary), "path": str(summary.path), "weights": str(summary.weights)},
        f"{summary.steps} steps in {summary.seconds:.0f} s, loss {summary.loss:.3f}{validation}\n"
        f"weights: {summary.weights}",
    )
