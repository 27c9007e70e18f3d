"""Taking a published version back, and offering it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prime_cli.core.errors import BadInput
from prime_cli.environments.hub_catalog import require_hub_id
from prime_cli.environments.resolve import EnvironmentId

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def yank_version(client: HubClient, identity: EnvironmentId, reason: str) -> dict[str, Any]:
    """Yank a version and return what the hub now says of it.

    Raises:
        BadInput: no version is named; `latest` would be another one the next time.
        HubError: there is no such version, or it belongs to somebody else.
    """
    data: dict[str, Any] = client.put(_path(identity), {"reason": reason})["data"]
    return data


def unyank_version(client: HubClient, identity: EnvironmentId) -> dict[str, Any]:
    """Offer a yanked version again and return what the hub now says of it.

    Raises:
        BadInput: no version is named.
        HubError: there is no such version, or it belongs to somebody else.
    """
    data: dict[str, Any] = client.delete(_path(identity))["data"]
    return data


def _path(identity: EnvironmentId) -> str:
    owner, name = require_hub_id(identity)
    if identity.version in (None, "latest"):
        raise BadInput("which version?", hint=f"write `{owner}/{name}@VERSION`, as `prime env version list` shows it")
    return f"environmentshub/{owner}/{name}/@{quote(str(identity.version), safe='')}/yank"
