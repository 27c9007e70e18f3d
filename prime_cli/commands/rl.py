"""`prime rl`: train with reinforcement learning, and look at runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.commands import rl_runs
from prime_cli.core.command_groups import new_group

app = new_group("Train a model with reinforcement learning.")


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file: model, [[env]], max_steps, batch_size, ...")],
    seed: Annotated[int | None, typer.Option(help="Overrides `seed` of the file.")] = None,
) -> None:
    """Train the model named in CONFIG on its environment, here, with separate processes for every part.

    The run directory holds the metrics, the rollouts, the logs and the weights. Ctrl-C stops everything.
    """
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.core.config_file import load_config
    from prime_cli.rl.config import RLConfig
    from prime_cli.rl.display import LiveDisplay, PlainDisplay
    from prime_cli.rl.launcher import run_training

    settings = load_config(config, RLConfig)
    if seed is not None:
        settings = settings.model_copy(update={"seed": seed})
    console = out.stderr_console()
    display = (LiveDisplay if out.is_interactive() else PlainDisplay)(console, settings.max_steps)
    try:
        summary = run_training(settings, display.observe, display.note)
    finally:
        display.close()
    out.print_result(
        {**asdict(summary), "path": str(summary.path), "weights": str(summary.weights)},
        f"{summary.steps} steps in {summary.seconds:.0f} s, reward {summary.first_reward:.3f} at the first step and "
        f"{summary.last_reward:.3f} at the last\nrun: {summary.path}\nweights: {summary.weights}",
    )


@app.command()
def plot(
    run_directory: Annotated[Path, typer.Argument(help="The folder of a run.")],
    picture: Annotated[Path | None, typer.Option("--save", help="Write the curve here (.png or .svg).")] = None,
) -> None:
    """Draw the reward curve of a run in the terminal, and save it as a picture."""
    from prime_cli.core import output as out
    from prime_cli.rl.plot import reward_curve, save_curve, terminal_curve
    from prime_cli.rl.run_directory import RunDirectory

    rewards = reward_curve(RunDirectory(run_directory))
    if picture is not None:
        save_curve(rewards, picture, title=run_directory.name)
    if out.mode().json:
        out.print_json({"rewards": rewards, "picture": str(picture) if picture else None})
        return
    typer.echo(terminal_curve(rewards, colour=out.stdout_console().is_terminal and not out.mode().plain))
    if picture is not None:
        out.note(f"picture: {picture}")


rl_runs.register(app)
