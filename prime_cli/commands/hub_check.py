"""`prime hub check`: have versions checked again, or those that never were."""

from __future__ import annotations

from typing import Annotated

import typer

from prime_cli.commands.hub_options import DatabaseUrl, DataDir, data_dir_of, import_server


def register(app: typer.Typer) -> None:
    """Add the command to `prime hub`."""
    app.command("check")(check)


def check(
    environment: Annotated[
        str | None, typer.Argument(metavar="OWNER/NAME[@VERSION]", help="Which; none: what was never checked.")
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = "",
) -> None:
    """Queue a check of a version, which a hub that serves with checks makes; without a name, of what has none yet.

    JSON output (--output json): {queued: [{environment, version, check_id}]}
    """
    from dataclasses import asdict

    from prime_cli.core.output import print_result

    import_server()
    from hub_server.checks.again import check_again

    queued = check_again(data_dir_of(data_dir), database_url or None, environment)
    lines = [f"{each.environment} {each.version} waits for its check" for each in queued]
    print_result({"queued": [asdict(each) for each in queued]}, "\n".join(lines) or "Everything was checked.")
