"""Takes away what no upload, version or evaluation needs any more: cut-off uploads, and bytes that no row names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Column, delete, func, select
from sqlalchemy.orm import Session

from hub_server.backups.exclusion import collecting
from hub_server.blobs import BlobStore
from hub_server.database import Base, Database, now, open_database
from hub_server.errors import NotServing
from hub_server.expected_blobs import forget_expected
from hub_server.open_blobs import open_blobs
from hub_server.operation.listening import only_server_of
from hub_server.registry.tables import Release, ReleaseFile
from hub_server.sandboxes.service import forget_ended
from hub_server.settings import settings_of_hub

# An upload URL is good for an hour, and the upload through it may take as long again.
_SAFE_BESIDE_A_SERVER = timedelta(hours=2)

_SANDBOXES_KEPT = timedelta(days=30)


@dataclass(frozen=True)
class Collected:
    """What one collection took away, and how much it left in place."""

    drafts: int
    blobs: int
    bytes_freed: int
    unfinished_uploads: int
    blobs_kept: int
    sandboxes: int  # that ended long ago


def collect_garbage(
    data_dir: Path, database_url: str | None, grace: timedelta, *, blobs_url: str | None = None
) -> Collected:
    """Collect in a data folder; a short `grace` only while no server runs on it.

    Raises:
        NotServing: there is no hub in this folder, one runs and an upload of the last hours could be hit, or a backup
            is under way.
    """
    settings = settings_of_hub(data_dir, database_url, blobs_url=blobs_url)
    with contextlib.ExitStack() as stack:
        if grace < _SAFE_BESIDE_A_SERVER:
            try:
                stack.enter_context(only_server_of(data_dir))
            except NotServing:
                raise NotServing(
                    f"a hub is running on {data_dir}, and an upload may be under way",
                    hint="stop it first, or give a grace of 2 hours or more",
                ) from None
        database = open_database(settings.database_url)
        stack.callback(database.close)
        if grace < _SAFE_BESIDE_A_SERVER:
            stack.enter_context(database.as_server(alone=True))
        stack.enter_context(collecting(database, data_dir))
        return collect(database, open_blobs(settings.blobs_url, settings.blob_dir, database), grace=grace)


def collect(database: Database, blobs: BlobStore, *, grace: timedelta) -> Collected:
    """Remove what nothing refers to and what is older than `grace`.

    Drafts that were never published go first, then the bytes of versions deleted longer ago than that, then every
    blob that no row names. What is known of sandboxes that ended goes after a month. The rows of deleted versions stay:
    their numbers are never given again. Safe beside a running hub as long as `grace` is longer than an upload takes.
    """
    with database.write() as session:
        drafts = _remove_drafts(session, grace)
        _let_go_of_deleted(session, grace)
        forget_expected(session, grace)
        sandboxes = forget_ended(session, now() - max(grace, _SANDBOXES_KEPT))
    unfinished = blobs.remove_unfinished(grace)
    blobs.recover()
    with database.read() as session:
        named = _named(session)
    freed, kept = [], 0
    for blob in blobs.all():
        size = None
        if blob.sha256 not in named and blob.is_older_than(grace):
            # The lock of a write keeps others from naming the blob between the look and the removal.
            with database.write() as session:
                size = None if _is_named(session, blob.sha256) else blobs.take_away(blob.sha256, grace)
        if size is None:
            kept += 1
        else:
            freed.append(size)
    return Collected(drafts, len(freed), sum(freed), unfinished, kept, sandboxes)


def _remove_drafts(session: Session, grace: timedelta) -> int:
    """Remove drafts to which nothing was added for the time of grace."""
    newest_file = (
        select(func.max(ReleaseFile.created_at)).where(ReleaseFile.release_id == Release.id).correlate(Release)
    )
    before = now() - grace
    old = select(Release.id).where(
        ~Release.claimed,
        Release.created_at <= before,
        func.coalesce(newest_file.scalar_subquery(), Release.created_at) <= before,
    )
    ids = list(session.scalars(old))
    session.execute(delete(ReleaseFile).where(ReleaseFile.release_id.in_(ids)))
    session.execute(delete(Release).where(Release.id.in_(ids)))
    return len(ids)


def _let_go_of_deleted(session: Session, grace: timedelta) -> None:
    deleted = select(Release.id).where(Release.claimed, Release.deleted_at <= now() - grace)
    session.execute(delete(ReleaseFile).where(ReleaseFile.release_id.in_(deleted)))


def _naming_columns() -> Iterator[Column[Any]]:
    """Yield the columns that name blobs: all whose name ends in `sha256`, of every table that there is."""
    for table in Base.metadata.sorted_tables:
        yield from (column for column in table.columns if column.name.endswith("sha256"))


def _named(session: Session) -> set[str]:
    return {name for column in _naming_columns() for name in session.scalars(select(column).distinct())}


def _is_named(session: Session, sha256: str) -> bool:
    return any(session.scalar(select(column).where(column == sha256).limit(1)) for column in _naming_columns())
