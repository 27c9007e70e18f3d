"""What the commands of `prime hub` share that work on a data folder."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Where everything lies; hub under the settings folder.")
]
DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database-url", metavar="URL", envvar="PRIME_HUB_DATABASE_URL", show_envvar=True,
        help="PostgreSQL (postgresql://...) instead of SQLite in the data folder.",
    ),
]  # fmt: skip
Blobs = Annotated[
    str,
    typer.Option(
        "--blobs", metavar="URL", envvar="PRIME_HUB_BLOBS", show_envvar=True,
        help="s3://BUCKET/PREFIX, or a folder, for the published bytes; blobs in the data folder.",
    ),
]  # fmt: skip


def import_server() -> ModuleType:
    """Import the server, which an installation without the extra `hub` does not have.

    Raises:
        PrimeError: a package of that extra is missing.
    """
    from prime_cli.core.errors import PrimeError

    try:
        import hub_server.serve
    except ModuleNotFoundError as error:
        raise PrimeError(f"the server needs the package {error.name}", hint="pip install 'prime-lab[hub]'") from None
    return hub_server.serve


def data_dir_of(given: Path | None) -> Path:
    """Return the data folder that is meant."""
    from prime_cli.core.context import prime_home

    return (given or prime_home() / "hub").expanduser().absolute()
