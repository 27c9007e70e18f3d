"""`prime env install` and `prime env uninstall`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prime_cli.environments.install import InstallOutcome
    from prime_cli.environments.installer import Tool


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("install")(install)
    app.command("uninstall")(uninstall)


def install(
    names: Annotated[list[str], typer.Argument(metavar="OWNER/NAME[@VERSION]|NAME...", help="From the hub, or local.")],
    with_: Annotated[str | None, typer.Option("--with", metavar="uv|pip", help="Default: uv where it is.")] = None,
    path: Annotated[Path, typer.Option("--path", "-p", help="Where environments lie.")] = Path("environments"),
    no_upgrade: Annotated[bool, typer.Option("--no-upgrade", help="Keep any version that is installed.")] = False,
    prerelease: Annotated[bool, typer.Option("--prerelease", help="Pre-releases of dependencies too.")] = False,
    no_constraints: Annotated[
        bool, typer.Option("--no-constraints", help="Do not hold dependencies to the tested versions.")
    ] = False,
) -> None:
    """Install environments into the workspace's interpreter."""
    from dataclasses import asdict

    from prime_cli.core import output as out
    from prime_cli.core.errors import PrimeError
    from prime_cli.environments.install import InstallOptions, install_environments

    options = InstallOptions(_tool(with_), not no_upgrade, prerelease, not no_constraints, path)
    outcomes = install_environments(names, options, out.note)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if out.mode().json:
        out.print_json({"results": [asdict(outcome) for outcome in outcomes]})
    else:
        for outcome in outcomes:
            _show(outcome)
    for outcome in failed:
        out.print_error(PrimeError(f"{outcome.environment}: {outcome.error}", outcome.hint))
    if failed:
        raise typer.Exit(1)


def uninstall(
    name: Annotated[str, typer.Argument(help="An installed environment.")],
    with_: Annotated[str | None, typer.Option("--with", metavar="uv|pip")] = None,
) -> None:
    """Remove an environment from the workspace's interpreter."""
    from prime_cli.core import output as out
    from prime_cli.environments.install import uninstall_environment

    version = uninstall_environment(name, _tool(with_))
    out.print_result({"environment": name, "version": version}, f"{name} {version} removed")


def _tool(text: str | None) -> Tool | None:
    from prime_cli.core.errors import BadInput

    match text:
        case None | "uv" | "pip":
            return text
        case _:
            raise BadInput(f"unknown installer {text!r}", hint="use `--with uv` or `--with pip`")


def _show(outcome: InstallOutcome) -> None:
    from prime_cli.core import output as out

    if outcome.status == "failed":
        return
    verb = "is installed already" if outcome.status == "kept" else "installed"
    out.print_result({}, f"{outcome.name} {outcome.version} {verb}\nprime eval run {outcome.name} -m MODEL")
