"""Which store of blobs a hub works with, by its URL."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hub_server.blobs import BlobStore, FolderBlobs
from hub_server.database import Database
from hub_server.errors import NotServing
from hub_server.expected_blobs import expect


def open_blobs(url: str | None, folder: Path, database: Database | None = None) -> BlobStore:
    """Return the store of a hub: its own `folder`, another one, or `s3://BUCKET/PREFIX?endpoint_url=...`.

    The database is told what is about to be stored, for the collections that run beside it.

    Raises:
        NotServing: it cannot be used.
    """
    try:
        if url is None:
            return FolderBlobs(folder)
        if "://" not in url:
            return FolderBlobs(Path(url).expanduser().absolute(), is_shared=True)
    except OSError as error:
        raise NotServing(f"cannot use the folder of blobs {error.filename}: {error.strerror}") from None
    if not url.startswith("s3://"):
        raise NotServing(f"blobs cannot lie in {url!r}", hint="give a folder, or s3://BUCKET/PREFIX")
    try:
        from hub_server.s3_blobs import S3Blobs
    except ModuleNotFoundError as error:
        raise NotServing(f"blobs in S3 need the package {error.name}", hint="pip install 'prime-lab[s3]'") from None
    return S3Blobs(url, folder / "incoming", partial(expect, database) if database else _expect_nothing)


def _expect_nothing(_sha256: str) -> None:
    """Tell nobody: there is no hub yet."""
