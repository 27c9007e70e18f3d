"""The checks that a hub makes of published versions: listed, read and asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prime_cli.core.errors import PrimeError
from prime_cli.environments.hub_catalog import require_hub_id
from prime_cli.environments.resolve import EnvironmentId

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


@dataclass(frozen=True)
class CheckPage:
    """Some of the checks of an environment, newest first, and how many there are in all."""

    rows: list[dict[str, Any]]
    total: int


def list_checks(client: HubClient, identity: EnvironmentId, *, limit: int = 20, offset: int = 0) -> CheckPage:
    """Return one page of the checks of an environment.

    Raises:
        HubError: there is no such environment.
    """
    data = client.get(f"{_place(identity)}/actions?limit={limit}&offset={offset}")["data"]
    return CheckPage(data["actions"], int(data["total"]))


def check_log(client: HubClient, identity: EnvironmentId, check_id: str | None, *, tail_lines: int) -> tuple[str, str]:
    """Return the id and the last lines of the log of a check, of the newest one when none is named.

    Raises:
        PrimeError: there is none yet.
        HubError: there is no such environment or check.
    """
    if check_id is None:
        newest = list_checks(client, identity, limit=1).rows
        if not newest:
            raise PrimeError(f"{identity} was not checked yet", hint="the hub may make no checks")
        check_id = str(newest[0]["id"])
    path = f"{_place(identity)}/actions/{quote(check_id, safe='')}/logs?tail_lines={tail_lines}"
    return check_id, str(client.get(path)["data"]["logs"])


def retry_check(client: HubClient, identity: EnvironmentId, check_id: str | None) -> dict[str, Any]:
    """Have a version checked again: that of a check, else the latest.

    Raises:
        HubError: there is no such environment or check, it is running, or it belongs to somebody else.
    """
    body = {"action_id": check_id} if check_id else {}
    data: dict[str, Any] = client.post(f"{_place(identity)}/actions/retry", body)["data"]
    return data


def _place(identity: EnvironmentId) -> str:
    owner, name = require_hub_id(identity)
    return f"environmentshub/{owner}/{name}"
