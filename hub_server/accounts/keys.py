"""API keys: made, shown once, used, expired and revoked."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session, make_transient_to_detached

from hub_server.accounts import audit
from hub_server.accounts.tables import ApiKey, User
from hub_server.database import Database, now, table_of
from hub_server.errors import Forbidden, Malformed, NotFound
from hub_server.signing import hash_secret

KEY_PREFIX = "prime_"
AREAS = ("account", "environments", "evaluations", "secrets", "sandboxes")
"""What a scope can be about. `account`: who I am, keys and teams; `evaluations`: traces too."""
READ, WRITE = "read", "write"
_MAX_KEYS = 200
# Every request with a key asks this, so it is made once and read without the identity map.
_KEYS, _OWNERS = table_of(ApiKey), table_of(User)
_KEY_WITH_USER = (
    select(*_KEYS.columns, *_OWNERS.columns)
    .join_from(_KEYS, _OWNERS, _OWNERS.c.id == _KEYS.c.user_id)
    .where(_KEYS.c.key_hash == bindparam("key_hash"))
)
Mapped = TypeVar("Mapped", ApiKey, User)
# The moment of last use is for people to look at; a write for each request would cost more than it tells.
_LAST_USE_RESOLUTION = timedelta(minutes=1)


def mint_key(
    session: Session,
    user: User,
    *,
    name: str,
    scopes: Mapping[str, str] | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Make an API key for `user` and return it; it cannot be read again. The caller has checked who asks."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    session.add(
        ApiKey(
            user_id=user.id,
            name=name,
            prefix=key[: len(KEY_PREFIX) + 4],
            key_hash=hash_secret(key),
            scopes=dict(scopes) if scopes is not None else None,
            expires_at=expires_at,
        )
    )
    session.flush()
    return key


def create_key(
    session: Session, user: User, *, name: str, scopes: Mapping[str, str] | None, expires_in_days: int | None
) -> tuple[ApiKey, str]:
    """Make a key on behalf of its user, and return its row and the key itself.

    Raises:
        Forbidden: it would allow more than the key that asks for it, or live longer.
        Malformed: the user has too many keys in use.
    """
    using = user.api_key
    expires_at = now() + timedelta(days=expires_in_days) if expires_in_days is not None else None
    if using is not None:
        _check_is_no_wider(using, scopes, expires_at)
    if len([row for row in keys_of(session, user) if is_in_use(row)]) >= _MAX_KEYS:
        raise Malformed(f"you have {_MAX_KEYS} API keys in use; revoke one first")
    key = mint_key(session, user, name=name, scopes=scopes, expires_at=expires_at)
    row = session.scalars(select(ApiKey).where(ApiKey.key_hash == hash_secret(key))).one()
    audit.record(session, user, "key.create", row.prefix, name=name, scopes=row.scopes)
    return row, key


def keys_of(session: Session, user: User) -> Sequence[ApiKey]:
    """Return all keys of a user, newest first, with those that are revoked or expired."""
    return session.scalars(select(ApiKey).where(ApiKey.user_id == user.id).order_by(ApiKey.created_at.desc())).all()


def revoke_key_by_id(session: Session, user: User, key_id: str) -> ApiKey:
    """Revoke a key of a user; repeating it changes nothing.

    Raises:
        NotFound: the user has no such key.
    """
    row = session.get(ApiKey, key_id)
    if row is None or row.user_id != user.id:
        raise NotFound(f"API key {key_id} not found among yours")
    if row.revoked_at is None:
        row.revoked_at = now()
        audit.record(session, user, "key.revoke", row.prefix, name=row.name)
    return row


def revoke_key(session: Session, key: str) -> bool:
    """Revoke an API key; False when there is no such key in use."""
    statement = update(ApiKey).where(ApiKey.key_hash == hash_secret(key), ApiKey.revoked_at.is_(None))
    return bool(session.connection().execute(statement.values(revoked_at=now())).rowcount)


def user_of_key(database: Database, key: str) -> User | None:
    """Return whose API key this is, with the key as `user.api_key`; None when it is unknown, revoked or expired.

    Notes the use.
    """
    key_hash = hash_secret(key)
    with database.read() as session:
        row = session.connection().execute(_KEY_WITH_USER, {"key_hash": key_hash}).first()
    if row is None:
        return None
    of_key = len(_KEYS.columns)
    found = _as_read(ApiKey, _KEYS, row[:of_key])
    if not is_in_use(found) or not hmac.compare_digest(found.key_hash, key_hash):
        return None
    if found.last_used_at is None or now() - found.last_used_at > _LAST_USE_RESOLUTION:
        with database.write(f"key {found.id}") as session:
            session.execute(update(ApiKey).where(ApiKey.id == found.id).values(last_used_at=now()))
    user = _as_read(User, _OWNERS, row[of_key:])
    user.api_key = found
    return user


def _as_read(mapped: type[Mapped], table: Table, values: Sequence[Any]) -> Mapped:
    """Return a row as an object that was read from the database and belongs to no session any more."""
    found = mapped(**{column.name: value for column, value in zip(table.columns, values, strict=True)})
    make_transient_to_detached(found)
    return found


def is_in_use(row: ApiKey) -> bool:
    """Say whether a key is neither revoked nor expired."""
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now())


def allows(row: ApiKey, area: str, access: str) -> bool:
    """Say whether a key may `read` or `write` in an area. Who may write may read."""
    if row.scopes is None:
        return True
    granted = row.scopes.get(area)
    return granted == WRITE or (granted == READ and access == READ)


def scope_of(row: ApiKey | None) -> dict[str, dict[str, bool]]:
    """Return what a key allows by area, as clients read it."""
    return {area: {access: row is None or allows(row, area, access) for access in (READ, WRITE)} for area in AREAS}


def key_row(row: ApiKey) -> dict[str, Any]:
    """Return a key as it looks on the wire: everything but the key."""
    return {
        "id": row.id,
        "name": row.name,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "created_at": row.created_at.isoformat(),
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "last_used_at": row.last_used_at.isoformat() if row.last_used_at else None,
        "revoked_at": row.revoked_at.isoformat() if row.revoked_at else None,
        "in_use": is_in_use(row),
    }


def _check_is_no_wider(using: ApiKey, scopes: Mapping[str, str] | None, expires_at: datetime | None) -> None:
    wanted = dict.fromkeys(AREAS, WRITE) if scopes is None else scopes
    wider = [f"{area}:{access}" for area, access in wanted.items() if not allows(using, area, access)]
    if wider:
        raise Forbidden(
            f"the key that you use ({using.prefix}…) cannot give {', '.join(wider)}; it has not these itself"
        )
    if using.expires_at is not None and (expires_at is None or expires_at > using.expires_at):
        raise Forbidden(f"the key that you use ({using.prefix}…) expires before the one that you ask for would")
