"""Which environment of a hub is meant: the one that was named, else the one that this folder was published as."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prime_cli.core.errors import BadInput
from prime_cli.environments.hub_catalog import fetch_details
from prime_cli.environments.metadata import read_metadata
from prime_cli.environments.resolve import parse_environment_id

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def find_published(client: HubClient, given: str | None, folder: Path) -> tuple[str, str]:
    """Return `owner/name` and the id on the hub.

    Raises:
        BadInput: nothing is named, and `folder` does not say what it was published as.
        HubError: there is no such environment.
    """
    name = given
    if name is None:
        noted = read_metadata(folder)
        if not (noted.get("owner") and noted.get("name")):
            raise BadInput(
                "which environment?", hint="name it as OWNER/NAME, or go to the folder that it was pushed from"
            )
        name = f"{noted['owner']}/{noted['name']}"
    details = fetch_details(client, parse_environment_id(name))
    return f"{details.owner}/{details.name}", str(details.raw["id"])
