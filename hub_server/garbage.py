"""Takes away what no upload, version or evaluation needs any more: cut-off uploads, and bytes that no row names."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Column, delete, func, select
from sqlalchemy.orm import Session

from hub_server.backups.exclusion import collecting
from hub_server.blobs import GONE_SUFFIX, BlobStore
from hub_server.database import Base, Database, now, open_database
from hub_server.errors import NotServing
from hub_server.registry.tables import Release, ReleaseFile
from hub_server.serve import only_server_of
from hub_server.settings import open_settings

# An upload URL is good for an hour, and the upload through it may take as long again.
_SAFE_BESIDE_A_SERVER = timedelta(hours=2)


@dataclass(frozen=True)
class Collected:
    """What one collection took away, and how much it left in place."""

    drafts: int
    blobs: int
    bytes_freed: int
    unfinished_uploads: int
    blobs_kept: int


def collect_garbage(data_dir: Path, database_url: str | None, grace: timedelta) -> Collected:
    """Collect in a data folder; a short `grace` only while no server runs on it.

    Raises:
        NotServing: there is no hub in this folder, one runs and an upload of the last hours could be hit, or a backup
            is under way.
    """
    if not data_dir.is_dir() or not (database_url or (data_dir / "hub.db").exists()):
        raise NotServing(f"{data_dir} is not the data folder of a hub", hint="name it with `--data-dir`")
    settings = open_settings(data_dir, database_url)
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
        return collect(database, BlobStore(settings.blob_dir), grace=grace)


def collect(database: Database, blobs: BlobStore, *, grace: timedelta) -> Collected:
    """Remove what nothing refers to and what is older than `grace`.

    Drafts that were never published go first, then the bytes of versions deleted longer ago than that, then every
    blob that no row names. The rows of deleted versions stay: their numbers are never given again. Safe beside a
    running hub as long as `grace` is longer than an upload takes.
    """
    with database.write() as session:
        drafts = _remove_drafts(session, grace)
        _let_go_of_deleted(session, grace)
    unfinished = sum(_remove_if_old(path, grace) is not None for path in blobs.incoming())
    for path in blobs.gone():
        path.replace(path.with_suffix(""))  # an earlier collection broke off here, so it is looked at again
    with database.read() as session:
        named = _named(session)
    freed, kept = [], 0
    for path in blobs.all():
        size = None
        if path.name not in named and _is_old(path, grace):
            # The lock of a write keeps others from naming the blob between the look and the removal.
            with database.write() as session:
                size = None if _is_named(session, path.name) else _take_away(path, grace)
        if size is None:
            kept += 1
        else:
            freed.append(size)
    return Collected(drafts, len(freed), sum(freed), unfinished, kept)


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


def _take_away(path: Path, grace: timedelta) -> int | None:
    """Remove a blob and return its size; None when somebody stored it anew in this very moment.

    It is moved aside first: what lies aside can be looked at without a race, and goes back when it is new.
    """
    aside = path.with_suffix(GONE_SUFFIX)
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, aside)
        size = _remove_if_old(aside, grace)
        if size is None:
            os.replace(aside, path)
        return size
    return None


def _remove_if_old(path: Path, grace: timedelta) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        if _is_old(path, grace):
            size = path.stat().st_size
            path.unlink()
            return size
    return None


def _is_old(path: Path, grace: timedelta) -> bool:
    try:
        return time.time() - path.stat().st_mtime >= grace.total_seconds()
    except FileNotFoundError:
        return False
