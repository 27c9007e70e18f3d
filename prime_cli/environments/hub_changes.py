"""Changes to what lies on a hub: deleting an environment or a version, forking, starring."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from prime_cli.core.errors import BadInput
from prime_cli.environments.hub_catalog import fetch_details, require_hub_id
from prime_cli.environments.resolve import EnvironmentId

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def delete_environment(client: HubClient, identity: EnvironmentId) -> None:
    """Delete an environment with all its versions.

    Raises:
        BadInput: a version is named, which a deletion of everything cannot have meant.
        HubError: there is no such environment, or it belongs to somebody else.
    """
    owner, name = require_hub_id(identity)
    if identity.version is not None:
        raise BadInput(
            f"{identity} names one version",
            hint=f"`prime env version delete {owner}/{name} {identity.version}` deletes it alone",
        )
    client.delete(f"environmentshub/{owner}/{name}")


def delete_version(client: HubClient, identity: EnvironmentId, wanted: str) -> str:
    """Delete the version that `wanted` names, and return its number.

    Raises:
        BadInput: `latest` is asked for, which would be another one the next time.
        HubError: there is no such version, several fit, or it belongs to somebody else.
    """
    owner, name = require_hub_id(identity)
    if wanted == "latest":
        raise BadInput("which version?", hint=f"`prime env version list {owner}/{name}` shows them")
    details = fetch_details(client, EnvironmentId(owner, name, wanted))
    client.delete(f"environmentshub/{owner}/{name}/@{quote(details.content_hash, safe='')}")
    return details.version
