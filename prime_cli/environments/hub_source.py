"""What a hub shows of an environment without a download: its status, and the files of a version's source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prime_cli.environments.hub_catalog import require_hub_id
from prime_cli.environments.resolve import EnvironmentId

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def fetch_status(client: HubClient, identity: EnvironmentId) -> dict[str, Any]:
    """Return an environment's name, description, visibility and latest version, of which it may have none yet.

    Raises:
        HubError: there is no such environment.
    """
    owner, name = require_hub_id(identity)
    data: dict[str, Any] = client.get(f"environmentshub/{owner}/{name}/status")["data"]
    return data


def fetch_source(client: HubClient, identity: EnvironmentId, path: str | None, max_bytes: int) -> dict[str, Any]:
    """Return a folder of a version's source with its entries, or a file with at most `max_bytes` of its text.

    Raises:
        HubError: there is no such version, or no such path in it.
    """
    owner, name = require_hub_id(identity)
    version = quote(identity.version or "latest", safe="")
    answer = client.get(f"environmentshub/{owner}/{name}/@{version}/inspect", max_bytes=max_bytes, path=path)
    data: dict[str, Any] = answer["data"]
    return data
