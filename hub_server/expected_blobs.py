"""Blobs that are about to be stored and named.

A collection looks whether a blob is named, then removes it. In a folder it can do that without a race, by moving the
blob aside. A store that cannot rename is told beforehand instead: an expected blob counts as named, and the one
transaction in which a collection looks and removes is either before the expectation or after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import String, delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from hub_server.database import Base, Database, UtcDateTime, now


class ExpectedBlob(Base):
    """A blob that somebody is about to store; as long as this row is there no collection takes it."""

    __tablename__ = "expected_blobs"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    expected_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


def expect(database: Database, sha256: str) -> None:
    """Note, before any of its bytes go to the store, that a blob is coming."""
    with database.write(f"blob {sha256}") as session:
        session.merge(ExpectedBlob(sha256=sha256, expected_at=now()))


def forget_expected(session: Session, grace: timedelta) -> None:
    """Forget what was expected before the time of `grace`: it is named by now, or never will be."""
    session.execute(delete(ExpectedBlob).where(ExpectedBlob.expected_at <= now() - grace))
