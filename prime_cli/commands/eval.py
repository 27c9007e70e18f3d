"""`prime eval`: measure a model on an environment, and look at the rollouts."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from prime_cli.commands import eval_compare, eval_hub, eval_logs, eval_run
from prime_cli.core.command_groups import CommandGroup, new_group


class RunByDefault(CommandGroup):
    """Takes `prime eval ENVIRONMENT -m MODEL` as `prime eval run ENVIRONMENT -m MODEL`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put `run` in front of what is neither a command nor a misspelt one."""
        name = args[0] if args else ""
        if name and name not in self.commands and not difflib.get_close_matches(name, self.commands):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = new_group("Measure a model on an environment, and look at the rollouts.", cls=RunByDefault)


eval_run.register(app)


@app.command("list")
def list_(
    hub: Annotated[bool, typer.Option("--hub", help="Yours on the hub, instead of this workspace's.")] = False,
    env: Annotated[
        str | None, typer.Option("--env", "-e", metavar="OWNER/NAME", help="All on the hub of an environment.")
    ] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="Rows on a page of the hub.")] = 20,
    page: Annotated[int, typer.Option("--page", "-p", min=1, help="The page of the hub.")] = 1,
) -> None:
    """List the evaluations of this workspace, newest first, or with --hub those on the hub."""
    from prime_cli.commands.eval_display import print_evaluations
    from prime_cli.evals.store import default_roots, find_evaluations

    if hub or env:
        eval_hub.print_hub_evaluations(env, num, page)
        return
    print_evaluations(find_evaluations(default_roots()))


app.command("ls", hidden=True)(list_)


@app.command()
def view(
    path: Annotated[
        str | None, typer.Argument(help="An evaluation's folder or id, or a folder above several; else all here.")
    ] = None,
) -> None:
    """Open the viewer: evaluations, their rollouts, the messages and the rewards."""
    from pathlib import Path

    from prime_cli.commands.eval_display import print_evaluations
    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.evals.find import evaluations_named
    from prime_cli.evals.store import default_roots, find_evaluations

    directories = evaluations_named(path) if path is not None else find_evaluations(default_roots())
    if not directories:
        raise PrimeError("there is no evaluation here", hint="run one with `prime eval run ENV -m MODEL`")
    if not out.can_open_viewer():
        print_evaluations(directories)
        return
    from prime_cli.viewer.app import view_evaluations

    # An id names one evaluation; a folder may get more of them while it is looked at.
    above = None if path is None else Path(path) if Path(path).is_dir() else directories[0].path
    view_evaluations(above).run()


eval_compare.register(app)
eval_hub.register(app)
eval_logs.register(app)
