"""The marks of PEP 792. Archived: complete, nothing new comes. Deprecated: use another. Quarantined: out of reach."""

from __future__ import annotations

from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.tables import User
from hub_server.errors import Conflict, Forbidden, NotFound
from hub_server.registry.index_names import note_change
from hub_server.registry.service import find_for_anybody
from hub_server.registry.tables import Environment
from prime_cli.hub.models import ProjectStatus

_CLOSED = (ProjectStatus.ARCHIVED, ProjectStatus.QUARANTINED)


def mark(session: Session, user: User, environment: Environment, status: ProjectStatus, reason: str) -> None:
    """Mark an environment as its owner.

    Raises:
        Forbidden: it is quarantined, which only an administrator ends.
    """
    if environment.project_status == ProjectStatus.QUARANTINED:
        raise Forbidden(f"{_name(environment)} is quarantined; only an administrator of the hub ends that")
    _set(session, user, environment, status, reason)


def quarantine(session: Session, user: User, environment: Environment, reason: str) -> None:
    """Take an environment out of everybody's reach, as an administrator; nothing of it is lost."""
    _set(session, user, environment, ProjectStatus.QUARANTINED, reason)


def release_from_quarantine(session: Session, user: User, environment: Environment) -> None:
    """Put an environment back to active.

    Raises:
        Conflict: it is not quarantined.
    """
    if environment.project_status != ProjectStatus.QUARANTINED:
        raise Conflict(f"{_name(environment)} is not quarantined: it is {environment.project_status}")
    _set(session, user, environment, ProjectStatus.ACTIVE, "")


def check_takes_versions(environment_name: str, status: str) -> None:
    """Check that an environment takes new versions.

    Raises:
        Conflict: it is archived or quarantined.
    """
    if status in _CLOSED:
        raise Conflict(f"{environment_name} is {status} and takes no new versions")


def check_is_offered(environment: Environment) -> None:
    """Check that files of an environment may be given out.

    Raises:
        Forbidden: it is quarantined.
    """
    if environment.project_status == ProjectStatus.QUARANTINED:
        raise Forbidden(f"{_name(environment)} is quarantined: {environment.status_reason}")


def find_as_administrator(session: Session, owner: str, name: str) -> Environment:
    """Return an environment whoever it belongs to and whoever may see it.

    Raises:
        NotFound: there is none.
    """
    found = find_for_anybody(session, owner, name)
    if found is None:
        raise NotFound(f"environment {owner}/{name} not found on this hub")
    return found


def _set(session: Session, user: User, environment: Environment, status: ProjectStatus, reason: str) -> None:
    environment.project_status, environment.status_reason = status, reason.strip()
    note_change(environment)
    audit.record(
        session, user, "environment.status", _name(environment), owner_id=environment.owner_id, status=status,
        reason=reason,
    )  # fmt: skip


def _name(environment: Environment) -> str:
    return f"{environment.owner.slug}/{environment.name}"
