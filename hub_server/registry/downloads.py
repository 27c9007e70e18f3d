"""Counts downloads without a write for each: they are gathered in memory and written together.

A server that is stopped writes what it has; one that is killed loses at most the downloads of its last `FLUSH_S`
seconds.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from datetime import date
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.requests import Request

from hub_server.database import Database, now
from hub_server.registry.tables import DownloadCount, Environment, Release, ReleaseFile

FLUSH_S = 5.0
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_logger = logging.getLogger(__name__)


class DownloadCounter:
    """Downloads that were not written yet, by version, file and day. Safe to use from many threads."""

    def __init__(self, flush_s: float = FLUSH_S) -> None:
        self._flush_s = flush_s
        self._gathered: Counter[tuple[str, str, date]] = Counter()
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def note(self, database: Database, file: ReleaseFile) -> None:
        """Count one download of a file; it is written within `flush_s` seconds."""
        with self._lock:
            self._gathered[file.release_id, file.filename, now().date()] += 1
            self._plan(database)

    def flush(self, database: Database) -> None:
        """Write what was gathered, now. What the database does not take is kept for the next time."""
        with self._lock:
            gathered, self._gathered = self._gathered, Counter()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        if not gathered:
            return
        try:
            with database.write() as session:
                _add(session, gathered)
        except SQLAlchemyError as error:
            _logger.warning("downloads could not be counted yet: %s", type(error).__name__)
            with self._lock:
                self._gathered.update(gathered)
                self._plan(database)

    def _plan(self, database: Database) -> None:
        if self._timer is None:
            self._timer = threading.Timer(self._flush_s, self.flush, (database,))
            self._timer.daemon = True
            self._timer.start()


def begins_download(request: Request) -> bool:
    """Say whether a request is a download: it asks for the bytes, from the first one on."""
    part = request.headers.get("range", "").replace(" ", "").lower()
    return request.method == "GET" and (not part or part.startswith("bytes=0-"))


def downloads_of(session: Session, release: Release) -> int:
    """Return how often the files of one version were downloaded, as far as that is written."""
    counts = select(func.coalesce(func.sum(DownloadCount.count), 0)).where(DownloadCount.release_id == release.id)
    return int(session.scalar(counts) or 0)


def _add(session: Session, gathered: Counter[tuple[str, str, date]]) -> None:
    insert = _INSERTS[session.connection().dialect.name]
    # In one order for all servers of a database, so that two that write at once never wait for each other.
    for (release_id, filename, day), count in sorted(gathered.items()):
        row = insert(DownloadCount).values(release_id=release_id, filename=filename, day=day, count=count)
        key = ["release_id", "filename", "day"]
        session.execute(row.on_conflict_do_update(index_elements=key, set_={"count": DownloadCount.count + count}))
    by_release: Counter[str] = Counter()
    for (release_id, _, _), count in gathered.items():
        by_release[release_id] += count
    environments = dict(
        session.execute(select(Release.id, Release.environment_id).where(Release.id.in_(by_release))).all()
    )
    by_environment: Counter[str] = Counter()
    for release_id, count in by_release.items():
        by_environment[environments[release_id]] += count
    for environment_id, count in sorted(by_environment.items()):
        raised = update(Environment).where(Environment.id == environment_id)
        session.execute(raised.values(downloads=Environment.downloads + count))
