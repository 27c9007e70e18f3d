"""Keeps a backup and a collection of garbage apart: the one copies blobs by a list that the other would shorten."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from hub_server.database import Database
from hub_server.errors import NotServing

_FILE = "collection.lock"
_KEY = 0x7072696D65  # the number of this lock among those of a PostgreSQL database


@contextmanager
def keeping_blobs(database: Database, data_dir: Path) -> Iterator[None]:
    """Let no collection begin for this time, after the end of one that runs. Several backups may run at once."""
    with _held(database, data_dir, fcntl.LOCK_SH, "pg_advisory_lock_shared"):
        yield


@contextmanager
def collecting(database: Database, data_dir: Path) -> Iterator[None]:
    """Let no backup begin for this time.

    Raises:
        NotServing: one is under way.
    """
    with _held(database, data_dir, fcntl.LOCK_EX | fcntl.LOCK_NB, "pg_try_advisory_lock"):
        yield


@contextmanager
def _held(database: Database, data_dir: Path, flags: int, function: str) -> Iterator[None]:
    """Hold the lock of the data folder, or on PostgreSQL, which several machines share, one of the database's own."""
    busy = NotServing("a backup of this hub, or another collection, is under way", hint="try again when it has ended")
    if not database.is_postgresql:
        with (data_dir / _FILE).open("a") as file:
            try:
                fcntl.flock(file, flags)
            except BlockingIOError:
                raise busy from None
            yield
        return
    # The lock is the connection's, so that it ends with this process however that ends.
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if connection.scalar(text(f"SELECT {function}({_KEY})")) is False:
            raise busy
        try:
            yield
        finally:
            connection.invalidate()
