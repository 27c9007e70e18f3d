"""`prime sft`: fine-tune on demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from prime_cli.commands.resumable import ResumableCommand, Resume
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.sft.config import SFTConfig

app = new_group("Fine-tune a model on demonstrations.")

_PLAIN_EVERY = 50


@app.command(cls=ResumableCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Argument(help="A TOML file: model, [data], max_steps, ... More files: `@ FILE`. Keys: `--a.b VALUE`."),
    ],
    seed: Annotated[int | None, typer.Option(help="Overrides `seed` of the file.")] = None,
    resume: Resume = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
) -> None:
    """Train the model named in CONFIG on demonstrations, and write its weights in Hugging Face layout.

    Any key of the file can be given behind it, as in `prime sft run sft.toml --data.path more.parquet --max-steps 10`.
    """
    from prime_cli.core import output as out
    from prime_cli.core.config_file import validate_config
    from prime_cli.core.config_layers import read_layers
    from prime_cli.sft.config import SFTConfig
    from prime_cli.sft.other_names import notes_on

    tables, source = read_layers([config, *context.args])
    settings = validate_config(tables, SFTConfig, source=source)
    for text in notes_on(tables):
        out.note(f"warning: {text}")
    if seed is not None:
        settings = settings.model_copy(update={"seed": seed})
    if dry_run:
        _show_plan(settings)
    else:
        _train(settings, resume)


def _train(settings: SFTConfig, resume: str | None) -> None:
    from collections.abc import Mapping
    from dataclasses import asdict

    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from prime_cli.core import output as out
    from prime_cli.rl.evaluation.output import SOURCE, eval_line
    from prime_cli.sft.run import run_sft  # brings torch, which a file that cannot be read need not wait for

    interactive = out.is_interactive()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out.stderr_console(), disable=not interactive) as progress:
        task = progress.add_task("training", total=settings.max_steps)

        def observe(record: Mapping[str, Any]) -> None:
            if record["source"] == SOURCE:
                out.note(escape(eval_line(record)))
                return
            step, text = record["step"], _figures(record)
            progress.update(task, completed=step, description=text)
            if not interactive and (step % _PLAIN_EVERY == 0 or step == settings.max_steps):
                out.note(f"step {step}/{settings.max_steps}  {text}")

        summary = run_sft(settings, observe, lambda text: out.note(escape(text)), resume=resume)
    validation = "" if summary.validation_loss is None else f", validation loss {summary.validation_loss:.3f}"
    out.print_result(
        {**asdict(summary), "path": str(summary.path), "weights": str(summary.weights)},
        f"{summary.steps} steps in {summary.seconds:.0f} s, loss {summary.loss:.3f}{validation}\n"
        f"weights: {summary.weights}",
    )


def _figures(record: Any) -> str:
    shown = {"loss/mean": "loss {:.3f}", "val/loss": "validation {:.3f}", "perf/throughput": " {:,.0f} tokens/s"}
    return " ".join(form.format(record[name]) for name, form in shown.items() if name in record)


def _show_plan(settings: SFTConfig) -> None:
    import json
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.rl.plan import count_gpus
    from prime_cli.sft.plan import plan_lines, plan_of

    plan = plan_of(settings, gpus=count_gpus())
    resolved = settings.model_dump(mode="json", exclude_none=True)
    text = json.dumps(resolved, indent=2) + "\n\n" + "\n".join(plan_lines(plan))
    out.print_result({"config": resolved, "plan": asdict(plan)}, text)
