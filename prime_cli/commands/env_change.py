"""`prime env delete` and `prime env version delete`: what is on a hub goes away, for good."""

from __future__ import annotations

from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", "-f", "--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `prime env`."""
    app.command("delete")(delete)


def delete(name: Annotated[str, typer.Argument(metavar="OWNER/NAME")], force: Force = False) -> None:
    """Delete an environment from the hub with all its versions, whose numbers are never given again.

    JSON output (--output json): {environment, deleted}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_changes import delete_environment
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    with connect() as client:
        _confirm(f"Delete {identity} with all its versions, for good?", force)
        delete_environment(client, identity)
    out.print_result({"environment": str(identity), "deleted": True}, f"{identity} deleted")


def delete_version(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME")],
    content_hash: Annotated[str, typer.Argument(metavar="VERSION", help="A number, or 8 and more of a content hash.")],
    force: Force = False,
) -> None:
    """Delete one version from the hub; `prime env yank` takes it back without breaking who pinned it.

    JSON output (--output json): {environment, version, deleted}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_changes import delete_version as remove
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    identity = parse_environment_id(name)
    with connect() as client:
        _confirm(f"Delete version {content_hash} of {identity}, for good?", force)
        version = remove(client, identity, content_hash)
    facts = {"environment": str(identity), "version": version, "deleted": True}
    out.print_result(facts, f"{identity} {version} deleted")


def _confirm(question: str, force: bool) -> None:
    """Ask before something is lost, where there is somebody to ask.

    Raises:
        BadInput: nobody can answer, and `--force` was not given.
    """
    import sys

    from prime_cli.core.errors import BadInput

    if force:
        return
    if not sys.stdin.isatty():
        raise BadInput("this deletes for good, and nobody is there to be asked", hint="add --force")
    typer.confirm(question, abort=True, err=True)
