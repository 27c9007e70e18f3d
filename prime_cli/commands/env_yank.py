"""`prime env yank` and `prime env unyank`: take a version back without breaking who depends on exactly it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Version = Annotated[str, typer.Argument(metavar="OWNER/NAME@VERSION")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("yank")(yank)
    app.command("unyank")(unyank)


def yank(
    name: Version,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Shown to whoever installs it all the same.")] = "",
) -> None:
    """Take a published version back: only who asks for exactly it still gets it, with the reason.

    JSON output (--output json): {environment, version, yanked, reason}
    """
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.environments.yank import yank_version
    from prime_cli.hub.client import connect

    with connect() as client:
        _show(name, yank_version(client, parse_environment_id(name), reason))


def unyank(name: Version) -> None:
    """Offer a yanked version again.

    JSON output (--output json): {environment, version, yanked, reason}
    """
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.environments.yank import unyank_version
    from prime_cli.hub.client import connect

    with connect() as client:
        _show(name, unyank_version(client, parse_environment_id(name)))


def _show(name: str, told: dict[str, Any]) -> None:
    from prime_cli.core import output as out

    environment, version = name.partition("@")[0], told["semantic_version"]
    facts = {
        "environment": environment, "version": version, "yanked": told["yanked"], "reason": told["yanked_reason"]
    }  # fmt: skip
    state = "is yanked; installers take it only when it is pinned" if told["yanked"] else "is offered again"
    out.print_result(facts, f"{environment} {version} {state}")
