"""API keys that the operator makes on the server's machine, straight in the database: beside a running hub or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import or_, select

from hub_server.accounts import audit
from hub_server.accounts.keys import is_in_use, key_row, keys_of, mint_key
from hub_server.accounts.tables import ApiKey, User
from hub_server.database import Database, now, open_database
from hub_server.settings import settings_of_hub
from prime_cli.core.errors import BadInput
from prime_cli.hub.models import NewKey


def create_token(data_dir: Path, database_url: str | None, slug: str, wanted: NewKey) -> tuple[dict[str, Any], str]:
    """Make an API key for a user; return its row and the key, which cannot be read again.

    Raises:
        BadInput: there is no such user.
        NotServing: there is no hub in the data folder.
    """
    with _database_of(data_dir, database_url) as database, database.write() as session:
        user = session.scalar(select(User).where(User.slug == slug.lower()))
        if user is None:
            raise BadInput(
                f"there is no user {slug!r} on this hub", hint="`prime hub token list` names those with keys"
            )
        ends = now() + timedelta(days=wanted.expires_in_days) if wanted.expires_in_days is not None else None
        scopes = None
        if wanted.scopes is not None:
            scopes = {str(area): str(access) for area, access in wanted.scopes.items()}
        key = mint_key(session, user, name=wanted.name, scopes=scopes, expires_at=ends)
        row = keys_of(session, user)[0]
        audit.record(session, None, "key.create", row.prefix, owner_id=user.id, name=row.name, by="the operator")
        return {"user": user.slug, **key_row(row)}, key


def list_tokens(data_dir: Path, database_url: str | None, slug: str | None, *, every: bool) -> list[dict[str, Any]]:
    """Return the keys of a user, or of all, newest first; `every` adds those that are revoked or expired.

    Raises:
        NotServing: there is no hub in the data folder.
    """
    with _database_of(data_dir, database_url) as database, database.read() as session:
        statement = select(ApiKey).join(ApiKey.user).order_by(ApiKey.created_at.desc())
        if slug is not None:
            statement = statement.where(User.slug == slug.lower())
        rows = [row for row in session.scalars(statement) if every or is_in_use(row)]
        return [{"user": row.user.slug, **key_row(row)} for row in rows]


def revoke_token(data_dir: Path, database_url: str | None, wanted: str) -> dict[str, Any]:
    """Revoke the key with this id or these first characters, at once and for good; return its row.

    Raises:
        BadInput: no key in use is called so, or several.
        NotServing: there is no hub in the data folder.
    """
    with _database_of(data_dir, database_url) as database, database.write() as session:
        named = select(ApiKey).where(or_(ApiKey.id == wanted, ApiKey.prefix == wanted.rstrip("…")))
        rows = [row for row in session.scalars(named) if is_in_use(row)]
        if len(rows) != 1:
            problem = f"{len(rows)} keys begin with {wanted!r}" if rows else f"no key in use is called {wanted!r}"
            raise BadInput(problem, hint="`prime hub token list` shows their ids")
        (row,) = rows
        row.revoked_at = now()
        audit.record(session, None, "key.revoke", row.prefix, owner_id=row.user_id, name=row.name, by="the operator")
        return {"user": row.user.slug, **key_row(row)}


@contextmanager
def _database_of(data_dir: Path, database_url: str | None) -> Iterator[Database]:
    database = open_database(settings_of_hub(data_dir, database_url).database_url)
    try:
        yield database
    finally:
        database.close()
