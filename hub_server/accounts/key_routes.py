"""Routes of API keys. A key is shown once, in the answer that made it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hub_server.access import Caller
from hub_server.accounts import keys
from hub_server.services import HubServices
from prime_cli.hub.models import NewKey

router = APIRouter(prefix="/api/v1/user/keys", tags=["accounts"])


@router.get("")
def list_keys(user: Caller, services: HubServices) -> dict[str, Any]:
    """List the caller's keys, those that are revoked or expired too."""
    with services.database.read() as session:
        return {"data": [keys.key_row(row) for row in keys.keys_of(session, user)]}


@router.post("")
def create_key(body: NewKey, user: Caller, services: HubServices) -> dict[str, Any]:
    """Make a key that allows at most what the key allows that asks for it."""
    scopes = {str(area): str(access) for area, access in body.scopes.items()} if body.scopes is not None else None
    with services.database.write() as session:
        row, key = keys.create_key(session, user, name=body.name, scopes=scopes, expires_in_days=body.expires_in_days)
        return {"data": {**keys.key_row(row), "api_key": key}}


@router.delete("/{key_id}")
def revoke_key(key_id: str, user: Caller, services: HubServices) -> dict[str, Any]:
    """Revoke a key, at once and for good."""
    with services.database.write() as session:
        return {"data": keys.key_row(keys.revoke_key_by_id(session, user, key_id))}
