"""`prime env action`: what older clients call the checks that a hub makes of published versions."""

from __future__ import annotations

from typing import Annotated

import typer

from prime_cli.core.command_groups import new_group

HubName = Annotated[str, typer.Argument(metavar="OWNER/NAME")]
CheckId = Annotated[str | None, typer.Argument(metavar="[CHECK]", help="The id of a check; else the newest.")]


def register(app: typer.Typer) -> None:
    """Add the group to `prime env`."""
    group = new_group("The checks that a hub makes of published versions.")
    group.command("list")(list_actions)
    group.command("logs")(logs)
    group.command("retry")(retry)
    app.add_typer(group, name="action", hidden=True)


def list_actions(
    name: HubName,
    num: Annotated[int, typer.Option("--num", "-n", min=1, max=1000, help="Rows on a page.")] = 20,
    page: Annotated[int, typer.Option("--page", "-p", min=1)] = 1,
) -> None:
    """List the checks of an environment, newest first.

    JSON output (--output json): {actions: [{id, status, version, trigger, created_at, check}], total}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_checks import list_checks
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        found = list_checks(client, parse_environment_id(name), limit=num, offset=num * (page - 1))
    if out.mode().json:
        out.print_json({"actions": found.rows, "total": found.total})
        return
    cells = [
        (row["id"], (row.get("version") or {}).get("semantic_version"), (row.get("check") or {}).get("badge"),
         row.get("trigger"), row.get("created_at"))
        for row in found.rows
    ]  # fmt: skip
    out.print_table(("id", "version", "check", "because of", "queued"), cells)


def logs(
    name: HubName,
    check_id: CheckId = None,
    tail: Annotated[int, typer.Option("--tail", min=1, max=100_000, help="Only the last lines.")] = 1000,
) -> None:
    """Print the log of a check, and at its end what came of it.

    JSON output (--output json): {id, logs}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_checks import check_log
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect(login_required=False) as client:
        found, log = check_log(client, parse_environment_id(name), check_id, tail_lines=tail)
    out.print_result({"id": found, "logs": log}, log)


def retry(name: HubName, check_id: CheckId = None) -> None:
    """Have a version checked again: that of a check, else the latest.

    JSON output (--output json): {success, job_id, version_id, message}
    """
    from prime_cli.core import output as out
    from prime_cli.environments.hub_checks import retry_check
    from prime_cli.environments.resolve import parse_environment_id
    from prime_cli.hub.client import connect

    with connect() as client:
        told = retry_check(client, parse_environment_id(name), check_id)
    out.print_result(told, str(told.get("message")))
