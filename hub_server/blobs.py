"""Bytes by their hash, in a folder or in an S3-compatible store. A name in a store always has all its bytes.

BlobStore       what the hub asks of a store
  FolderBlobs   a folder: written aside, flushed to disk, renamed
  S3Blobs       in `s3_blobs.py`: written aside here, and uploaded in one piece
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol

from prime_cli.core.files import flush

_GONE_SUFFIX = ".gone"
_CHUNK_BYTES = 1024**2
# A disk brings several files to rest in the time of one; these threads wait for it beside the one that answers.
_flushers = ThreadPoolExecutor(8, thread_name_prefix="flush")


@dataclass(frozen=True)
class StoredBlob:
    """A blob that is there, its size, and when it was stored last, in seconds since the epoch."""

    sha256: str
    size: int
    stored_at: float

    def is_older_than(self, grace: timedelta) -> bool:
        """Say whether nobody stored it for the time of `grace`."""
        return time.time() - self.stored_at >= grace.total_seconds()


class BlobStore(Protocol):
    """Blobs, addressed by sha256. Only a row of the database makes one reachable.

    What reads a blob that is not there raises FileNotFoundError. Nothing is kept inside a transaction: a store may
    have to tell the database first.
    """

    def __hash__(self) -> int:
        """Let a store be a key of what is kept in memory."""

    def writer(self) -> BlobWriter:
        """Return a writer for a new blob; use it in a `with` block."""

    def prepare(self, writer: BlobWriter) -> None:
        """Begin what takes long in keeping a blob that is whole, while the caller looks at it."""

    def keep(self, *writers: BlobWriter) -> None:
        """Store blobs for good and give them their names; the same bytes that are there already are kept."""

    def put(self, data: bytes) -> str:
        """Store `data` and return its sha256."""

    def read(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a part of a blob, as much of it as there is."""

    def size(self, sha256: str) -> int:
        """Return the size of a blob in bytes."""

    def stream(self, sha256: str, offset: int, length: int) -> Iterator[bytes]:
        """Yield a part of a blob piece by piece."""

    def local_path(self, sha256: str) -> Path | None:
        """Return where a blob lies, or would lie, on this machine; None where blobs lie elsewhere."""

    def local(self, sha256: str) -> AbstractContextManager[Path]:
        """Give a file with a blob for the time of a `with` block; nobody may change it."""

    def probe(self) -> None:
        """Raise whatever keeps bytes from being stored; leaves nothing."""

    def total(self) -> tuple[int, int]:
        """Return how many blobs there are, and their bytes."""

    def clear_incoming(self) -> None:
        """Remove what an earlier server of this data folder left half-written. Only at start."""

    def recover(self) -> None:
        """Undo the half of a collection that broke off."""

    def remove_unfinished(self, grace: timedelta) -> int:
        """Remove uploads to which nothing was added for the time of `grace`, and say how many."""

    def all(self) -> Iterator[StoredBlob]:
        """Yield every blob."""

    def take_away(self, sha256: str, grace: timedelta) -> int | None:
        """Remove a blob and return its size; None when it is gone already or was stored within `grace`.

        The caller sees to it that no row names it, and that none comes to before this returns.
        """


class FolderBlobs:
    """Blobs in a folder. One that several servers share is not emptied of uploads by any of them."""

    def __init__(self, folder: Path, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._blobs = folder / "sha256"
        self._incoming = folder / "incoming"
        self._folders_on_disk: set[str] = set()
        for path in (self._blobs, self._incoming):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def clear_incoming(self) -> None:
        """Remove what an earlier server left half-written; of a shared folder only a collection does."""
        if not self._is_shared:
            for path in self._incoming.iterdir():
                path.unlink()

    def all(self) -> Iterator[StoredBlob]:
        """Yield every blob."""
        for path in self._blobs.glob("??/*"):
            if path.suffix == "":
                with contextlib.suppress(FileNotFoundError):  # collected in this moment
                    found = path.stat()
                    yield StoredBlob(path.name, found.st_size, found.st_mtime)

    def path(self, sha256: str) -> Path:
        """Return where the blob lies, or would lie."""
        return self._blobs / sha256[:2] / sha256

    def local_path(self, sha256: str) -> Path:
        """Return where the blob lies, or would lie."""
        return self.path(sha256)

    @contextmanager
    def local(self, sha256: str) -> Iterator[Path]:
        """Give the blob itself."""
        yield self.path(sha256)

    def size(self, sha256: str) -> int:
        """Return the size of a blob in bytes."""
        return self.path(sha256).stat().st_size

    def read(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a part of a blob, as much of it as there is."""
        with self.path(sha256).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def stream(self, sha256: str, offset: int, length: int) -> Iterator[bytes]:
        """Yield a part of a blob piece by piece."""
        with self.path(sha256).open("rb") as file:
            file.seek(offset)
            while length > 0 and (data := file.read(min(length, _CHUNK_BYTES))):
                length -= len(data)
                yield data

    def writer(self) -> BlobWriter:
        """Return a writer for a new blob; use it in a `with` block."""
        return BlobWriter(self, f"{self._incoming}/{secrets.token_hex(16)}")

    def prepare(self, writer: BlobWriter) -> None:
        """Begin to flush a blob to disk."""
        writer.begin_flush()

    def keep(self, *writers: BlobWriter) -> None:
        """Flush blobs to disk and give them their names; the same bytes that are there already are kept.

        Together they go to disk at once, and take hardly longer than one.
        """
        *others, last = writers
        for writer in others:
            writer.begin_flush()
        for writer in (last, *others):
            writer.flush()
        *folders, folder = {writer.name_in(self._folder_of(writer.sha256)) for writer in writers}
        flushing = [_flushers.submit(flush, other) for other in folders]
        flush(folder)
        for flushed in flushing:
            flushed.result()

    def _folder_of(self, sha256: str) -> str:
        """Return the folder in which a blob is to lie; it is there, and known to be on disk."""
        folder = f"{self._blobs}/{sha256[:2]}"
        if folder not in self._folders_on_disk:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, mode=0o700)
            flush(self._blobs)
            self._folders_on_disk.add(folder)
        return folder

    def probe(self) -> None:
        """Raise whatever keeps bytes from being stored; leaves nothing."""
        with self.writer() as writer:
            writer.write(b"probe")

    def total(self) -> tuple[int, int]:
        """Return how many blobs there are, and their bytes."""
        sizes = [blob.size for blob in self.all()]
        return len(sizes), sum(sizes)

    def put(self, data: bytes) -> str:
        """Store `data` and return its sha256."""
        with self.writer() as writer:
            writer.write(data)
            writer.keep()
            return writer.sha256

    def recover(self) -> None:
        """Put back what a collection moved aside and did not come to remove: it is looked at again."""
        for path in list(self._blobs.glob(f"??/*{_GONE_SUFFIX}")):
            path.replace(path.with_suffix(""))

    def remove_unfinished(self, grace: timedelta) -> int:
        """Remove uploads to which nothing was added for the time of `grace`, and say how many."""
        return sum(remove_if_old(path, grace) is not None for path in list(self._incoming.iterdir()))

    def take_away(self, sha256: str, grace: timedelta) -> int | None:
        """Remove a blob and return its size; None when somebody stored it anew in this very moment.

        It is moved aside first: what lies aside can be looked at without a race, and goes back when it is new.
        """
        path = self.path(sha256)
        aside = path.with_suffix(_GONE_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, aside)
            size = remove_if_old(aside, grace)
            if size is None:
                os.replace(aside, path)
            return size
        return None


class BlobWriter:
    """One blob on its way in. What was not kept at the end of the block is gone."""

    def __init__(self, store: BlobStore, path: str) -> None:
        self._store = store
        self._digest = hashlib.sha256()
        self.size = 0
        self._path: str | None = path
        self._flushing: Future[None] | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._flushing is not None:
            wait([self._flushing])
        os.close(self._file)
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        assert self._flushing is None, "a blob that goes to disk is whole"
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._digest.update(data)
        self.size += len(data)

    def written(self) -> Path:
        """Return the file with all that was written so far, to be looked at before it is kept."""
        assert self._path is not None, "what was kept lies in the store"
        return Path(self._path)

    def keep(self) -> None:
        """Flush to disk and give the blob its name; the same bytes that are there already are kept."""
        self._store.keep(self)

    def begin_flush(self) -> None:
        """Begin to bring all bytes to disk; nothing is written from here on, and `flush` waits for the end."""
        if self._flushing is None:
            self._flushing = _flushers.submit(os.fsync, self._file)

    def flush(self) -> None:
        """Bring all bytes to disk."""
        if self._flushing is None:
            os.fsync(self._file)
        else:
            self._flushing.result()

    def name_in(self, folder: str) -> str:
        """Give the blob its name in a folder, and return the folder."""
        assert self._path is not None, "a blob is kept once"
        os.replace(self._path, f"{folder}/{self.sha256}")
        self._path = None
        return folder


def remove_if_old(path: Path, grace: timedelta) -> int | None:
    """Remove a file that nobody wrote to for the time of `grace`; return its size, None when it stays or is gone."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if StoredBlob(path.name, found.st_size, found.st_mtime).is_older_than(grace):
            path.unlink()
            return found.st_size
    return None
