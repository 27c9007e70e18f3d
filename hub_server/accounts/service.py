"""Users, their API keys and their browser sessions."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import re
import secrets
from datetime import timedelta

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts.tables import ApiKey, BrowserSession, User
from hub_server.database import Database, now
from hub_server.errors import Conflict
from hub_server.settings import HubSettings
from prime_cli.core.files import write_text_atomically

KEY_PREFIX = "prime_"
SESSION_HOURS = 12
# The moment of last use is for people to look at; a write for each request would cost more than it tells.
_LAST_USE_RESOLUTION = timedelta(minutes=1)


def hash_secret(text: str) -> str:
    """Return the hash under which a random secret is kept; 256 random bits need no slow hash."""
    return hashlib.sha256(text.encode()).hexdigest()


def create_user(session: Session, *, slug: str, name: str = "", email: str = "", is_admin: bool = False) -> User:
    """Add a user.

    Raises:
        Conflict: the slug is taken.
    """
    user = User(slug=slug, name=name or slug, email=email, is_admin=is_admin)
    session.add(user)
    _flush_slug(session, slug)
    return user


def change_slug(session: Session, user_id: str, slug: str) -> User:
    """Give a user another slug; what they published moves along.

    Raises:
        Conflict: the slug is taken.
    """
    user = session.get_one(User, user_id)
    user.slug = slug
    _flush_slug(session, slug)
    return user


def mint_key(session: Session, user: User, *, name: str) -> str:
    """Make an API key for `user` and return it; it cannot be read again."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    session.add(ApiKey(user_id=user.id, name=name, prefix=key[: len(KEY_PREFIX) + 4], key_hash=hash_secret(key)))
    session.flush()
    return key


def user_of_key(database: Database, key: str) -> User | None:
    """Return whose API key this is; None when it is unknown or revoked. Notes the use."""
    key_hash = hash_secret(key)
    with database.read() as session:
        found = session.scalar(select(ApiKey).where(ApiKey.key_hash == key_hash))
    if found is None or found.revoked_at is not None or not hmac.compare_digest(found.key_hash, key_hash):
        return None
    if found.last_used_at is None or now() - found.last_used_at > _LAST_USE_RESOLUTION:
        with database.write(f"key {found.id}") as session:
            session.execute(update(ApiKey).where(ApiKey.id == found.id).values(last_used_at=now()))
    return found.user


def revoke_key(session: Session, key: str) -> bool:
    """Revoke an API key; False when there is no such key in use."""
    statement = update(ApiKey).where(ApiKey.key_hash == hash_secret(key), ApiKey.revoked_at.is_(None))
    return bool(session.connection().execute(statement.values(revoked_at=now())).rowcount)


def open_browser_session(session: Session, user: User) -> str:
    """Start a browser session for `user` and return its cookie."""
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now()))
    token = secrets.token_urlsafe(32)
    expires_at = now() + timedelta(hours=SESSION_HOURS)
    session.add(BrowserSession(token_hash=hash_secret(token), user_id=user.id, expires_at=expires_at))
    return token


def close_browser_session(session: Session, token: str | None) -> None:
    """End a browser session; one that ended before stays so."""
    if token:
        session.execute(delete(BrowserSession).where(BrowserSession.token_hash == hash_secret(token)))


def user_of_browser(session: Session, token: str | None) -> User | None:
    """Return who is signed in with this cookie; None when nobody is."""
    found = session.get(BrowserSession, hash_secret(token)) if token else None
    return found.user if found is not None and found.expires_at > now() else None


def ensure_administrator(database: Database, settings: HubSettings) -> bool:
    """On the first start make an administrator and store its API key 0600; True when that was done.

    The key is on disk before the user exists: a crash between the two leaves a hub that simply starts afresh.
    """
    with database.write() as session:
        if session.scalar(select(User.id).limit(1)) is not None:
            return False
        user = create_user(session, slug=slug_of_operator(), is_admin=True)
        key = mint_key(session, user, name="administrator's first key")
        write_text_atomically(settings.admin_key_path, key + "\n", mode=0o600)
        return True


def slug_of_operator() -> str:
    """Return the name of the operating system's user as a slug, `admin` where it gives none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = ""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
    return slug if len(slug) >= 3 else "admin"


def _flush_slug(session: Session, slug: str) -> None:
    try:
        session.flush()
    except IntegrityError:
        raise Conflict(f"the slug {slug!r} is already taken; choose another") from None
