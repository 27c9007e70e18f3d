"""Users and their browser sessions."""

from __future__ import annotations

import getpass
import re
import secrets
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.keys import is_in_use, mint_key
from hub_server.accounts.tables import ApiKey, BrowserSession, FormerSlug, Owner, User
from hub_server.database import Database, now
from hub_server.errors import Conflict
from hub_server.settings import HubSettings
from hub_server.signing import hash_secret
from prime_cli.core.files import write_text_atomically

SESSION_HOURS = 12


def create_user(session: Session, *, slug: str, name: str = "", email: str = "", is_admin: bool = False) -> User:
    """Add a user.

    Raises:
        Conflict: the slug is taken.
    """
    user = User(slug=slug, name=name or slug, email=email, is_admin=is_admin)
    session.add(user)
    flush_slug(session, user)
    return user


def change_slug(session: Session, user_id: str, slug: str) -> User:
    """Give a user another slug; what they published moves along.

    The former slug stays theirs: whoever else had it would publish to those who still install from it.

    Raises:
        Conflict: the slug is taken.
    """
    user = session.get_one(User, user_id)
    before, user.slug = user.slug, slug
    flush_slug(session, user)
    session.merge(FormerSlug(slug=before, owner_id=user.id))
    audit.record(session, user, "user.slug", slug, before=before)
    return user


def open_browser_session(session: Session, key: ApiKey) -> str:
    """Start a browser session for whom this key belongs to, and return its cookie. It ends with the key."""
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now()))
    token = secrets.token_urlsafe(32)
    expires_at = now() + timedelta(hours=SESSION_HOURS)
    session.add(
        BrowserSession(token_hash=hash_secret(token), user_id=key.user_id, key_id=key.id, expires_at=expires_at)
    )
    return token


def close_browser_session(session: Session, token: str | None) -> None:
    """End a browser session; one that ended before stays so."""
    if token:
        session.execute(delete(BrowserSession).where(BrowserSession.token_hash == hash_secret(token)))


def user_of_browser(session: Session, token: str | None) -> User | None:
    """Return who is signed in with this cookie, with the key that they signed in with; None when nobody is."""
    found = session.get(BrowserSession, hash_secret(token)) if token else None
    if found is None or found.expires_at <= now() or not is_in_use(found.key):
        return None
    user = found.user
    user.api_key = found.key
    return user


def ensure_administrator(database: Database, settings: HubSettings) -> bool:
    """On the first start make an administrator and store its API key 0600; True when that was done.

    The key is on disk before the user exists: a crash between the two leaves a hub that simply starts afresh.
    """
    with database.write() as session:
        if session.scalar(select(Owner.id).limit(1)) is not None:
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


def flush_slug(session: Session, owner: Owner) -> None:
    """Write an owner with a new slug.

    Raises:
        Conflict: the slug is taken, by a user or a team, or was another one's before.
    """
    taken = Conflict(f"the slug {owner.slug!r} is already taken; choose another")
    with session.no_autoflush:
        former = session.get(FormerSlug, owner.slug)
    if former is not None and former.owner_id != owner.id:
        raise taken
    try:
        session.flush()
    except IntegrityError:
        raise taken from None
