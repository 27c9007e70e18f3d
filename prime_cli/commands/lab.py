"""`prime lab`: set up a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Set up a workspace for environments, evals and training.")

_NEXT = (
    ("prime env init my-task", "write an environment"),
    ("prime env init reverse-text --template reverse-text", "or take one that a tiny model learns"),
    ("prime eval run reverse-text -m MODEL", "measure one: endpoint, URL or folder"),
    ("prime rl run configs/rl/reverse-text.toml", "train"),
)


@app.command()
def setup(
    path: Annotated[
        Path, typer.Option("--path", help="The folder of the workspace; made if it is not there.")
    ] = Path(),
    prime_rl: Annotated[
        bool, typer.Option("--prime-rl", help="Also check that what training needs is installed.")
    ] = False,
    # Nothing is asked today; scripts written for the published command say it all the same.
    no_interactive: Annotated[bool, typer.Option("--no-interactive", help="Ask nothing.", hidden=True)] = False,
) -> None:
    """Write starter configs, AGENTS.md and the folders of a workspace; what is there is kept."""
    from rich.markup import escape

    from prime_cli.core import output as out
    from prime_cli.lab.setup import set_up_workspace

    if prime_rl:
        _require_training()
    workspace = set_up_workspace(path)
    next_lines = "\n".join(f"  {command:<52} {purpose}" for command, purpose in _NEXT)
    if workspace.kept:
        out.note(escape(f"kept as it was: {', '.join(workspace.kept)}"))
    out.print_result(
        {"path": str(path.resolve()), "written": workspace.written, "kept": workspace.kept},
        f"workspace ready in {path.resolve()} ({len(workspace.written)} files written)\nnext:\n{next_lines}",
    )


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the task, the weights and the order of examples.")] = 0,
    path: Annotated[Path, typer.Option("--path", help="Where everything goes; emptied first.")] = Path("outputs/demo"),
) -> None:
    """Run the whole loop on this machine: publish, install, evaluate, train, evaluate again."""
    import sys
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.lab.demo import Demo

    if out.mode().json:
        # One object on stdout: what the steps print goes to stderr with everything else.
        summary = Demo(path, seed=seed, say=lambda text: typer.echo(text, err=True), stdout=sys.stderr.fileno()).run()
        out.print_json(asdict(summary))
        return
    summary = Demo(path, seed=seed, say=typer.echo).run()
    typer.echo()
    rewards = [("before RL", f"{summary.baseline_reward:.3f}"), ("after RL", f"{summary.final_reward:.3f}")]
    out.print_table(("held-out reward", f"seed {seed}"), rewards)
    out.print_table(("step", "seconds"), [*summary.steps.items(), ("all", summary.seconds)])
    out.print_table(("what", "where"), summary.paths.items())


def _require_training() -> None:
    """Check that the training libraries are there, without importing them."""
    from importlib.util import find_spec

    from prime_cli.core.errors import PrimeError

    missing = [name for name in ("torch", "transformers", "verifiers", "safetensors") if find_spec(name) is None]
    if missing:
        raise PrimeError(f"training needs {', '.join(missing)}", hint="install it with `pip install 'prime-lab[lab]'`")
