"""Makes a backup of a hub that runs or not.

One read transaction writes the tables, so they are of one moment. A blob never changes and is stored before a row
names it, so the blobs are copied after that, while no collection may run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub_server.backups.exclusion import keeping_blobs
from hub_server.backups.manifest import BLOB_LIST, Manifest, Member, pack_blob_list
from hub_server.backups.rows import Named, revision_of, tables_of, write_table
from hub_server.backups.targets import FolderTarget, Target, open_target
from hub_server.blobs import BlobStore
from hub_server.database import Database, now
from hub_server.errors import NotServing
from hub_server.open_blobs import open_blobs
from hub_server.settings import LAST_BACKUP, HubSettings, settings_of_hub
from prime_cli import __version__
from prime_cli.core.files import write_json_atomically

_CHUNK_BYTES = 1024**2


@dataclass(frozen=True)
class BackedUp:
    """What a backup holds. `blobs_copied` are those that no earlier one in the same folder had."""

    path: str
    made_at: str
    tables: int
    rows: int
    blobs: int
    blobs_copied: int
    bytes: int
    damaged: list[str]
    pruned: int


def back_up(
    data_dir: Path,
    database_url: str | None,
    target_path: Path,
    *,
    blobs_url: str | None = None,
    with_keys: bool = True,
    keep: int | None = None,
) -> BackedUp:
    """Back a hub up to a `.tar` file or into a folder of backups, of which the newest `keep` stay.

    Blobs that the database names and that are missing or damaged are left out and named in the result.

    Raises:
        NotServing: there is no hub in the data folder, or the target is taken.
    """
    settings = settings_of_hub(data_dir, database_url, blobs_url=blobs_url)
    made_at = now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    target = open_target(target_path, made_at)
    if keep is not None and not isinstance(target, FolderTarget):
        raise NotServing("a .tar is one backup", hint="leave --keep out, or back up into a folder")
    database = Database(settings.database_url)
    try:
        with keeping_blobs(database, data_dir), target:
            done = _write(settings, database, target, made_at, with_keys=with_keys)
            if keep is not None and isinstance(target, FolderTarget):
                done = BackedUp(**{**vars(done), "pruned": target.prune(keep)})
    finally:
        database.close()
    write_json_atomically(data_dir / LAST_BACKUP, {"made_at": done.made_at, "path": done.path})
    return done


def _write(settings: HubSettings, database: Database, target: Target, made_at: str, *, with_keys: bool) -> BackedUp:
    keys = _key_files(settings.data_dir) if with_keys else {}
    members: list[Member] = []
    named = Named()
    with database.read() as session:
        connection = session.connection()
        revision = revision_of(connection)
        for table in tables_of(connection):
            file = target.room / f"{table.name}.jsonl.gz"
            rows = write_table(connection, table, file, named)
            members.append(_take(target, f"tables/{file.name}", file, rows))
    if with_keys and _key_files(settings.data_dir) != keys:
        raise NotServing("the keys of this hub were changed while it was backed up", hint="run this again")
    for name, data in keys.items():
        (target.room / name).write_bytes(data)
        members.append(_take(target, f"keys/{name}", target.room / name))
    blobs, copied, damaged = _copy_blobs(open_blobs(settings.blobs_url, settings.blob_dir, database), target, named)
    (target.room / BLOB_LIST).write_bytes(pack_blob_list(blobs))
    members.append(_take(target, BLOB_LIST, target.room / BLOB_LIST))
    manifest = Manifest(
        made_at=made_at,
        hub_version=__version__,
        revision=revision,
        made_on=database.engine.dialect.name,
        members=members,
        blob_count=len(blobs),
        blob_bytes=sum(blobs.values()),
        damaged=damaged,
    )
    path = target.finish(manifest)
    row_counts = [each.rows for each in members if each.rows is not None]
    size = manifest.blob_bytes + sum(each.size for each in members)
    return BackedUp(str(path), made_at, len(row_counts), sum(row_counts), len(blobs), copied, size, damaged, pruned=0)


def _take(target: Target, path: str, file: Path, rows: int | None = None) -> Member:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    target.add_file(path, file)
    return Member(path=path, sha256=digest, size=file.stat().st_size, rows=rows)


def _copy_blobs(blobs: BlobStore, target: Target, named: Named) -> tuple[dict[str, int], int, list[str]]:
    """Copy every blob that is named; return those by size, how many were new to the target, and the damaged ones."""
    kept: dict[str, int] = {}
    damaged, copied = [], 0
    for sha256 in sorted(named.needed | named.promised):
        try:
            size = blobs.size(sha256)
        except FileNotFoundError:
            if sha256 in named.needed:
                damaged.append(sha256)
            continue
        if not target.has_blob(sha256, size):
            if not target.add_blob(sha256, _chunks(blobs, sha256, size)):
                damaged.append(sha256)
                continue
            copied += 1
        kept[sha256] = size
    return kept, copied, damaged


def _chunks(blobs: BlobStore, sha256: str, size: int) -> Iterator[bytes]:
    for offset in range(0, size, _CHUNK_BYTES):
        yield blobs.read(sha256, offset, _CHUNK_BYTES)


def _key_files(data_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(data_dir.glob("*.key"))}
