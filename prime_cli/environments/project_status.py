"""Marking a whole environment on the hub (PEP 792)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prime_cli.core.errors import BadInput
from prime_cli.environments.hub_catalog import require_hub_id
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.hub.models import ProjectStatus

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


def mark_environment(client: HubClient, identity: EnvironmentId, status: ProjectStatus, reason: str) -> dict[str, Any]:
    """Mark an environment and return {project_status, status_reason} as the hub now says.

    `quarantined`, and `active` for what is quarantined, are for administrators of the hub.

    Raises:
        BadInput: a version is named: a mark is the whole environment's.
        HubError: there is no such environment, or the caller may not.
    """
    owner, name = require_hub_id(identity)
    if identity.version is not None:
        raise BadInput(
            f"a mark is the whole environment's, not that of {identity.version}",
            hint=f"write `{owner}/{name}`; for a version there is `prime env yank`",
        )
    path = f"environmentshub/{owner}/{name}"
    if status is ProjectStatus.QUARANTINED:
        answer = client.put(f"{path}/quarantine", {"reason": reason})
    else:
        answer = client.put(f"{path}/project-status", {"status": status, "reason": reason})
    data: dict[str, Any] = answer["data"]
    return data


def end_quarantine(client: HubClient, identity: EnvironmentId) -> dict[str, Any]:
    """Put a quarantined environment back to active, as an administrator.

    Raises:
        HubError: there is no such environment, it is not quarantined, or the caller may not.
    """
    owner, name = require_hub_id(identity)
    data: dict[str, Any] = client.delete(f"environmentshub/{owner}/{name}/quarantine")["data"]
    return data
