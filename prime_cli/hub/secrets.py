"""Secrets and variables on a hub, from the client's side. Values go there and, those of secrets, never come back."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prime_cli.core.errors import BadInput, PrimeError

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class Shelf:
    """Where secrets or variables lie: the path of their routes, and how people call one of them."""

    path: str
    noun: str
    team_id: str | None = None

    @property
    def params(self) -> dict[str, Any]:
        """The query parameters of its routes."""
        return {"teamId": self.team_id} if self.team_id else {}


def global_secrets(client: HubClient) -> Shelf:
    """Return the secrets of the team of the settings in force, else the user's own."""
    return Shelf("secrets/", "secret", client.settings.team_id)


def secrets_of(environment_id: str) -> Shelf:
    """Return the secrets of an environment."""
    return Shelf(f"environmentshub/{environment_id}/secrets", "secret")


def variables_of(environment_id: str) -> Shelf:
    """Return the variables of an environment."""
    return Shelf(f"environmentshub/{environment_id}/variables", "variable")


def list_entries(client: HubClient, shelf: Shelf) -> list[dict[str, Any]]:
    """Return what lies there, by name."""
    return list(client.get(shelf.path, **shelf.params)["data"])


def find_entry(client: HubClient, shelf: Shelf, wanted: str, *, source: str | None = None) -> dict[str, Any]:
    """Return the entry of this id or name; with `source` only of those that come from there.

    Raises:
        PrimeError: there is none; names those there are.
    """
    entries = [entry for entry in list_entries(client, shelf) if source is None or entry.get("source") == source]
    for entry in entries:
        if wanted in (entry["id"], entry["name"]):
            return dict(entry)
    known = ", ".join(str(entry["name"]) for entry in entries)
    raise PrimeError(f"there is no {shelf.noun} {wanted!r}", hint=f"there are: {known}" if known else None)


def add_entry(
    client: HubClient, shelf: Shelf, name: str, value: str, *, description: str | None = None, is_file: bool = False
) -> dict[str, Any]:
    """Add a secret or a variable and return what the hub says of it.

    Raises:
        BadInput: the name cannot be one.
    """
    body: dict[str, Any] = {"name": check_name(name), "value": value}
    if description is not None:
        body["description"] = description
    if is_file:
        body["isFile"] = True
    if shelf.team_id:
        body["teamId"] = shelf.team_id
    return dict(client.post(shelf.path, body)["data"])


def change_entry(client: HubClient, shelf: Shelf, entry_id: str, **changes: str | None) -> dict[str, Any]:
    """Change what is not None of `name`, `value` and `description`, and return what the hub says of it.

    Raises:
        BadInput: the new name cannot be one.
    """
    body: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    if "name" in body:
        check_name(body["name"])
    if shelf.team_id:
        body["teamId"] = shelf.team_id
    return dict(client.patch(_entry_path(shelf, entry_id), body)["data"])


def remove_entry(client: HubClient, shelf: Shelf, entry_id: str) -> None:
    """Delete a secret or a variable."""
    client.delete(_entry_path(shelf, entry_id))


def link_secret(client: HubClient, environment_id: str, secret_id: str) -> dict[str, Any]:
    """Link a global secret to an environment and return the link."""
    return dict(client.post(f"environmentshub/{environment_id}/secrets/link/{secret_id}", {})["data"])


def unlink_secret(client: HubClient, environment_id: str, secret_id: str) -> None:
    """Take a global secret from an environment."""
    client.delete(f"environmentshub/{environment_id}/secrets/link/{secret_id}")


def check_name(name: str) -> str:
    """Return a name that can be one of an environment variable.

    Raises:
        BadInput: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot name a secret or a variable",
            hint="use A-Z, digits and underscores, a letter first, such as API_KEY_2",
        )
    return name


def read_file(path: Path) -> str:
    """Return the content of a file in base64, as the hub takes files.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _entry_path(shelf: Shelf, entry_id: str) -> str:
    return f"{shelf.path.rstrip('/')}/{entry_id}"
