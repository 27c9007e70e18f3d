"""The root command: a table of group -> module, each imported only when it is called.

Nothing heavy may be imported here: `prime --help` must cost little more than starting Python with typer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from prime_cli import __version__
from prime_cli.core.errors import BadInput, PrimeError

COMMANDS: dict[str, tuple[str, str]] = {
    "login": ("prime_cli.commands.login", "Log in to a hub."),
    "logout": ("prime_cli.commands.logout", "Forget the stored API key."),
    "whoami": ("prime_cli.commands.whoami", "Show who you are, and on which hub."),
    "switch": ("prime_cli.commands.switch", "Work as a team, or as yourself."),
    "teams": ("prime_cli.commands.teams", "Publish and evaluate together."),
    "keys": ("prime_cli.commands.keys", "Make, list and revoke API keys."),
    "config": ("prime_cli.commands.config", "Show and change settings and contexts."),
    "lab": ("prime_cli.commands.lab", "Set up a workspace for environments, evals and training."),
    "env": ("prime_cli.commands.env", "Write, build, publish and install environments."),
    "fork": ("prime_cli.commands.fork", "Begin an environment of your own from somebody else's."),
    "model": ("prime_cli.commands.model", "Make small models locally."),
    "eval": ("prime_cli.commands.eval", "Measure a model on an environment, and look at the rollouts."),
    "gepa": ("prime_cli.commands.gepa", "Improve a system prompt by reflecting on what comes of it."),
    "sft": ("prime_cli.commands.sft", "Fine-tune a model on demonstrations."),
    "rl": ("prime_cli.commands.rl", "Train a model with reinforcement learning."),
    "inference": ("prime_cli.commands.inference", "Serve a model folder behind an OpenAI-compatible API."),
    "sandbox": ("prime_cli.commands.sandbox", "Run untrusted code in sandboxes, on a machine of your own."),
    "secret": ("prime_cli.commands.secret", "Keep secrets on a hub, for hosted jobs."),
    "hub": ("prime_cli.commands.hub", "Run an Environments Hub of your own."),
}

_OUTPUT_FORMATS = ("table", "json")


class LazyGroup(TyperGroup):
    """A group whose subcommands are names and summaries until one of them is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Import the module of `cmd_name` and return its command; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(COMMANDS[cmd_name][0])
        return typer.main.get_command(module.app)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """List the commands from the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    name="prime",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich costs more to import than all of the root help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"prime {__version__}")
        raise typer.Exit


@app.callback(
    epilog="--plain, --output and --context work anywhere on the line. Use --plain in scripts and for agents. "
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
)
def root(
    plain: Annotated[bool, typer.Option("--plain", help="No colour, no boxes, no live display.")] = False,
    output: Annotated[str, typer.Option("--output", metavar="table|json", help="Format of results.")] = "table",
    context: Annotated[
        str, typer.Option("--context", "-c", metavar="NAME", help="Use this saved context for one call.")
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", "-v", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """prime: write, publish, evaluate and train on RL environments, on your own machines."""
    from prime_cli.core import output as out

    if output not in _OUTPUT_FORMATS:
        raise BadInput(f"invalid output format {output!r}", hint="use `--output table` or `--output json`")
    out.set_mode(plain=plain, as_json=output == "json")
    if context:
        os.environ["PRIME_CONTEXT"] = context


def hoist_global_options(arguments: Sequence[str]) -> list[str]:
    """Move `--plain`, `--output X` and `--context X` to the front, so that they work anywhere before a bare `--`."""
    hoisted: list[str] = []
    rest: list[str] = []
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        if argument == "--":
            rest += [argument, *pending]
            break
        if argument == "--plain" or argument.startswith(("--output=", "--context=")):
            hoisted.append(argument)
        elif argument in ("--output", "--context") and pending:
            hoisted += [argument, pending.pop(0)]
        else:
            rest.append(argument)
    return hoisted + rest


def _show_usage_error(error: typer.TyperException) -> None:
    """Show what typer found wrong with the command line as every other error is shown, with the help to look at."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return
    from prime_cli.core.output import print_error

    command = context.command_path if context is not None else "prime"
    print_error(BadInput(error.format_message(), hint=f"see `{command} --help`"))


def main() -> None:
    """Run the tool on `sys.argv` and exit with 0, 1, 2 or 130."""
    try:
        sys.exit(app(hoist_global_options(sys.argv[1:]), prog_name="prime", standalone_mode=False))
    except typer.Abort:
        sys.exit(1)
    except typer.TyperException as error:
        _show_usage_error(error)
        sys.exit(error.exit_code)
    except PrimeError as error:
        from prime_cli.core.output import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
