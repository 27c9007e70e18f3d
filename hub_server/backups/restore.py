"""Makes a hub from a backup. It appears at once and whole, or not at all.

Everything is put together in a folder beside the one that is wanted, checked, and renamed. Where the rows go into a
database of their own, the folder carries a mark until they are committed, and no server starts on a marked folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from hub_server.backups.asides import folder_beside
from hub_server.backups.rows import Filling, is_empty, read_table, revision_of
from hub_server.backups.sources import Verified, open_source
from hub_server.blobs import BlobStore
from hub_server.database import Database
from hub_server.errors import NotServing
from hub_server.open_blobs import open_blobs
from hub_server.settings import RESTORING
from prime_cli.core.files import flush, write_bytes_atomically


@dataclass(frozen=True)
class Restored:
    """What a backup held, and where it is now."""

    data_dir: str | None
    made_at: str
    rows: int
    blobs: int
    bytes: int
    damaged: list[str]


def verify(source_path: Path, snapshot: str | None = None) -> Restored:
    """Read a whole backup, compare every hash, and write nothing.

    Raises:
        NotServing: there is no backup, or it is damaged.
    """
    with open_source(source_path, snapshot) as source:
        backup = Verified(source)
        for path in [*backup.paths("tables"), *backup.paths("keys")]:
            backup.copy(path, Path(os.devnull))
        for sha256, _ in backup.blobs():
            for _chunk in backup.blob(sha256):
                pass
        return _told(backup, None)


def restore(
    source_path: Path,
    data_dir: Path,
    database_url: str | None = None,
    *,
    blobs_url: str | None = None,
    snapshot: str | None = None,
) -> Restored:
    """Make the data folder of a hub from a backup, its rows in SQLite there, or in an empty database by URL.

    With `blobs_url` its blobs join those of that store, where nobody may be collecting.

    Raises:
        NotServing: the backup is damaged, or the folder or the database is not empty.
    """
    is_cut_off = (data_dir / RESTORING).exists()
    if data_dir.exists() and not is_cut_off and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise NotServing(f"{data_dir} is not empty", hint="a hub is restored into a new folder only")
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    with open_source(source_path, snapshot) as source, folder_beside(data_dir) as aside:
        backup = Verified(source)
        if database_url is not None:
            _check_is_empty(database_url)
            (aside / RESTORING).touch()
        _copy_blobs(backup, open_blobs(blobs_url, aside / "blobs"))
        for path in backup.paths("keys"):
            write_bytes_atomically(aside / Path(path).name, backup.read(path), mode=0o600)
        if database_url is None:
            _fill(backup, f"sqlite:///{aside / 'hub.db'}", aside)
        if is_cut_off:
            shutil.rmtree(data_dir)
        flush(aside)
        os.rename(aside, data_dir)
        flush(data_dir.parent)
        if database_url is not None:
            _fill(backup, database_url, data_dir)
            (data_dir / RESTORING).unlink()
        return _told(backup, data_dir)


def _copy_blobs(backup: Verified, blobs: BlobStore) -> None:
    for sha256, _ in backup.blobs():
        with blobs.writer() as writer:
            for chunk in backup.blob(sha256):
                writer.write(chunk)
            writer.keep()


def _check_is_empty(database_url: str) -> None:
    database = Database(database_url)
    try:
        with database.engine.connect() as connection:
            if not is_empty(connection):
                raise NotServing("the database is not empty", hint="a hub is restored into an empty one only")
    except SQLAlchemyError as error:
        raise NotServing(f"cannot use the database: {_reason(error)}") from None
    finally:
        database.close()


def _fill(backup: Verified, database_url: str, folder: Path) -> None:
    """Make the tables at the revision of the backup, fill them in one transaction, then bring them to the newest."""
    database = Database(database_url)
    try:
        database.migrate(backup.manifest.revision)
        with database.write() as session, tempfile.TemporaryDirectory(dir=folder) as room:
            connection = session.connection()
            assert revision_of(connection) == backup.manifest.revision
            filling = Filling(connection)
            filling.begin()
            tables = {table.name: table for table in filling.tables}
            for path in backup.paths("tables"):
                name = path.removeprefix("tables/").removesuffix(".jsonl.gz")
                file = backup.copy(path, Path(room) / "table")
                if name not in tables or read_table(connection, tables[name], file) != backup.member(path).rows:
                    raise NotServing(f"{path} of the backup does not fit revision {backup.manifest.revision}")
            filling.end()
        database.migrate()
    except CommandError as error:
        raise NotServing(
            f"the backup has the tables of a version that this one does not know: {error}",
            hint="use the version of prime that made it, or a later one",
        ) from None
    except (SQLAlchemyError, ValueError) as error:
        raise NotServing(f"the rows of the backup cannot be restored: {_reason(error)}") from None
    finally:
        database.close()


def _told(backup: Verified, data_dir: Path | None) -> Restored:
    manifest = backup.manifest
    rows = sum(each.rows or 0 for each in manifest.members)
    size = manifest.blob_bytes + sum(each.size for each in manifest.members)
    shown = str(data_dir) if data_dir is not None else None
    return Restored(shown, manifest.made_at, rows, manifest.blob_count, size, manifest.damaged)


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
