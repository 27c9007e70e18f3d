"""`prime rl`: train with reinforcement learning, and look at runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prime_cli.commands import rl_plot, rl_runs, rl_tokens
from prime_cli.commands.resumable import ResumableCommand, Resume
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.rl.config import RLConfig

app = new_group("Train a model with reinforcement learning.")


@app.command(cls=ResumableCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    config: Annotated[
        str,
        typer.Argument(help="A TOML file: model, [[env]], max_steps, ... More files: `@ FILE`. Keys: `--a.b VALUE`."),
    ],
    seed: Annotated[int | None, typer.Option(help="Overrides `seed` of the file.")] = None,
    resume: Resume = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    env_var: Annotated[
        list[str] | None,
        typer.Option("--env-var", "-e", metavar="KEY=VALUE", help="For the environments; a KEY alone, or an env file."),
    ] = None,
    env_file: Annotated[
        list[Path] | None, typer.Option("--env-file", metavar="FILE", help="Variables for the environments.")
    ] = None,
) -> None:
    """Train the model named in CONFIG on its environment, here, with separate processes for every part.

    The run directory holds the metrics, the rollouts, the logs and the weights. Ctrl-C stops everything. Any key of the
    file can be given behind it, as in `prime rl run run.toml --trainer.optim.type muon --max-steps 10`.
    """
    from dataclasses import asdict

    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.core.env_file import variables_from, variables_of_files
    from prime_cli.rl.resolve import resolve_words

    variables = variables_of_files(env_file or []) | variables_from(env_var or [])
    resolved = resolve_words([config, *context.args])
    settings = resolved.config
    for warning in resolved.warnings:
        out.warn(escape(warning))
    if seed is not None:
        settings = settings.model_copy(update={"seed": seed})
    if dry_run:
        _show_plan(settings, resolved.warnings)
        return
    from prime_cli.rl.display import LiveDisplay, PlainDisplay
    from prime_cli.rl.launcher import run_training

    console = out.stderr_console()
    display = (LiveDisplay if out.is_interactive() else PlainDisplay)(console, settings.max_steps)
    try:
        summary = run_training(settings, display.observe, display.note, variables, resume=resume)
    finally:
        display.close()
    out.print_result(
        {**asdict(summary), "path": str(summary.path), "weights": str(summary.weights)},
        f"{summary.steps} steps in {summary.seconds:.0f} s, reward {summary.first_reward:.3f} at the first step and "
        f"{summary.last_reward:.3f} at the last\nrun: {summary.path}\nweights: {summary.weights}",
    )


def _show_plan(settings: RLConfig, warnings: list[str]) -> None:
    import json
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.rl.inference.vllm import chosen_engine
    from prime_cli.rl.plan import count_gpus, plan_lines, plan_of

    engine = chosen_engine(settings.inference)
    plan = plan_of(settings, gpus=count_gpus())
    resolved = settings.model_dump(mode="json", exclude_none=True)
    text = json.dumps(resolved, indent=2) + "\n\n" + "\n".join(plan_lines(plan, engine))
    facts = {"config": resolved, "engine": engine, "plan": asdict(plan), "warnings": warnings}
    out.print_result(facts, text)


rl_runs.register(app)
app.command("tokens")(rl_tokens.tokens)
app.command("plot")(rl_plot.plot)
