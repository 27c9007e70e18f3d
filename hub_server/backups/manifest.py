"""What a backup says of itself. The manifest is written last, so a backup without one is none.

    manifest.json
    tables/NAME.jsonl.gz        a line with the columns, then one line per row (rows.py)
    keys/NAME.key               the key files of the data folder (0600)
    blobs.txt.gz                hash and size of each blob, sorted
    blobs/sha256/AB/ABCD...     the blobs

In a tar file that is all there is. A backup folder keeps many: each in `snapshots/MOMENT/`, and the blobs of all once.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hub_server.errors import NotServing

MANIFEST = "manifest.json"
BLOB_LIST = "blobs.txt.gz"


class Member(BaseModel):
    """A file of a backup; `rows` is the number of rows where it is a table."""

    model_config = ConfigDict(frozen=True)

    path: str
    sha256: str
    size: int
    rows: int | None = None


class Manifest(BaseModel):
    """The content of a backup."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    made_at: str
    hub_version: str
    revision: str
    made_on: str  # the kind of database; a backup goes back into any kind
    members: list[Member]
    blob_count: int
    blob_bytes: int
    damaged: list[str]  # blobs that the database names and that were missing or had other bytes


def read_manifest(text: bytes, source: str) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        NotServing: it is none, or of a later format.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        reason = error.errors()[0]
        where = ".".join(str(part) for part in reason["loc"]) or "the whole"
        raise NotServing(
            f"{source} is not a backup that this version reads ({where}: {reason['msg']})",
            hint="use the version of prime that made it, or a later one",
        ) from None


def member(path: str, data: bytes, rows: int | None = None) -> Member:
    """Return what the manifest says of a file."""
    return Member(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data), rows=rows)


def pack_blob_list(blobs: Mapping[str, int]) -> bytes:
    """Return the list of blobs as a file."""
    text = "".join(f"{sha256} {size}\n" for sha256, size in sorted(blobs.items()))
    return gzip.compress(text.encode(), 6, mtime=0)


def unpack_blob_list(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield hash and size of each blob of a list whose bytes were checked."""
    for line in gzip.decompress(data).decode().splitlines():
        sha256, _, size = line.partition(" ")
        yield sha256, int(size)
