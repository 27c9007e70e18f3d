"""What the index keeps of an environment: a serial that every visible change raises, and its name in the whole hub."""

from __future__ import annotations

from sqlalchemy import bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from hub_server.registry.tables import Environment, IndexName
from prime_cli.hub.models import Visibility

_SHOWN = select(Environment.normalized_name, Environment.id).where(
    Environment.id == bindparam("environment_id"),
    Environment.visibility == Visibility.PUBLIC,
    Environment.latest_release_id.is_not(None),
)
_CLAIM = {
    dialect.__name__.rpartition(".")[2]: dialect.insert(IndexName.__table__)
    .from_select(["normalized_name", "environment_id"], _SHOWN)
    .on_conflict_do_nothing()
    for dialect in (sqlite, postgresql)
}


def note_change(environment: Environment) -> None:
    """Raise the serial under which pages of this environment are kept; the database counts, so no change is lost."""
    environment.index_serial = Environment.index_serial + 1  # type: ignore[assignment]


def claim_name(session: Session, environment_id: str) -> None:
    """Let the name mean this environment in the index of the whole hub, if it is public and the name is still free.

    The first public environment of a name has it for good, deleted or not: were it the newest, anybody could publish
    a higher version under a name that others install. What is not flushed yet is not looked at.
    """
    connection = session.connection()
    connection.execute(_CLAIM[connection.dialect.name], {"environment_id": environment_id})
