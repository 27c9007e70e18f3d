"""`prime env mark`: say of a whole environment that it is archived, deprecated, or quarantined."""

from __future__ import annotations

from typing import Annotated

import typer

from prime_cli.hub.models import ProjectStatus


def register(app: typer.Typer) -> None:
    """Add the command to `prime env`."""
    app.command("mark")(mark)


def mark(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME")],
    status: Annotated[ProjectStatus, typer.Argument(help="What installers and people should know of it.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Shown to whoever looks at it.")] = "",
    end_quarantine: Annotated[
        bool, typer.Option("--end-quarantine", help="With active: end a quarantine, as an administrator.")
    ] = False,
) -> None:
    """Mark an environment (PEP 792).

    archived: it is complete and takes no new versions. deprecated: better use another. quarantined: an administrator
    takes it out of everybody's reach; nothing is lost. active: as before.

    JSON output (--output json): {environment, project_status, status_reason}
    """
    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import print_result
    from prime_cli.environments import project_status
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    if end_quarantine and status is not ProjectStatus.ACTIVE:
        raise BadInput("--end-quarantine goes with `active`", hint="only `active` ends one")
    if status is ProjectStatus.QUARANTINED and not reason:
        raise BadInput("a quarantine needs a reason", hint="give it with --reason; it is shown to everybody")
    identity = parse_environment_id(name)
    with connect() as client:
        if end_quarantine:
            told = project_status.end_quarantine(client, identity)
        else:
            told = project_status.mark_environment(client, identity, status, reason)
    why = f": {told['status_reason']}" if told["status_reason"] else ""
    print_result({"environment": name, **told}, f"{name} is {told['project_status']}{why}")
