"""Changes to what lies on a hub: deleting an environment or a version, forking, starring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
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


def star(client: HubClient, identity: EnvironmentId, *, starred: bool) -> int:
    """Star an environment, or take the star back, and return how many stars it has.

    Raises:
        HubError: there is no such environment.
    """
    owner, name = require_hub_id(identity)
    path = f"environmentshub/{owner}/{name}/star"
    return int((client.put(path) if starred else client.delete(path))["data"]["stars"])


def fork(client: HubClient, identity: EnvironmentId, team: str | None) -> dict[str, Any]:
    """Fork the latest version to a team by its slug, else to the team of the settings, else to the caller.

    Raises:
        BadInput: a version is named; the latest is what is forked.
        HubError: there is no such environment or team, or an environment of this name is there.
    """
    owner, name = require_hub_id(identity)
    if identity.version not in (None, "latest"):
        raise BadInput(
            f"{identity} names one version", hint=f"the latest is what is forked: `prime fork {owner}/{name}`"
        )
    body = {"team_slug": team} if team else {"team_id": client.settings.team_id} if client.settings.team_id else {}
    data: dict[str, Any] = client.post(f"environmentshub/{owner}/{name}/fork", body)["data"]
    return data
