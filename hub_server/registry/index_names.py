"""What the index keeps of an environment: a serial that every visible change raises, and its name in the whole hub."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.registry.tables import Environment, IndexName
from prime_cli.hub.models import Visibility


def note_change(environment: Environment) -> None:
    """Raise the serial under which pages of this environment are kept; the database counts, so no change is lost."""
    environment.index_serial = Environment.index_serial + 1  # type: ignore[assignment]


def claim_name(session: Session, environment: Environment) -> None:
    """Let the name mean this environment in the index of the whole hub, if it is public and the name is still free.

    The first public environment of a name has it for good, deleted or not: were it the newest, anybody could publish
    a higher version under a name that others install.
    """
    public = environment.visibility == Visibility.PUBLIC and environment.latest_release_id is not None
    if not public or session.get(IndexName, environment.normalized_name) is not None:
        return
    try:
        with session.begin_nested():
            session.add(IndexName(normalized_name=environment.normalized_name, environment_id=environment.id))
    except IntegrityError:
        return  # another server on this database was first
