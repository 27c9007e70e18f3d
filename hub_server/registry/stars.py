"""Stars: somebody marks an environment, once."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts.tables import User
from hub_server.registry.tables import Environment, Star


def star(session: Session, environment_id: str, user: User) -> int:
    """Star an environment and return how many stars it has; a second star of the same user changes nothing."""
    environment = session.get_one(Environment, environment_id)
    if not is_starred(session, environment_id, user):
        try:
            with session.begin_nested():
                session.add(Star(environment_id=environment_id, user_id=user.id))
        except IntegrityError:
            pass  # another request of the same user was first
        else:
            environment.stars = Environment.stars + 1  # type: ignore[assignment]
    return _count(session, environment)


def unstar(session: Session, environment_id: str, user: User) -> int:
    """Take a star back and return how many are left; without a star nothing changes."""
    environment = session.get_one(Environment, environment_id)
    given = delete(Star).where(Star.environment_id == environment_id, Star.user_id == user.id)
    if session.connection().execute(given).rowcount:
        environment.stars = Environment.stars - 1  # type: ignore[assignment]
    return _count(session, environment)


def is_starred(session: Session, environment_id: str, user: User | None) -> bool:
    """Say whether the user starred this environment; nobody did not."""
    return user is not None and session.get(Star, (environment_id, user.id)) is not None


def starred_by(session: Session, environment_ids: list[str], user: User | None) -> set[str]:
    """Return which of these environments the user starred."""
    if user is None:
        return set()
    theirs = select(Star.environment_id).where(Star.user_id == user.id, Star.environment_id.in_(environment_ids))
    return set(session.scalars(theirs))


def _count(session: Session, environment: Environment) -> int:
    session.flush()
    session.refresh(environment, ["stars"])
    return environment.stars
