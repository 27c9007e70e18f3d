"""Bytes by their hash: written aside, flushed to disk, renamed. A name in the store always has all its bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

GONE_SUFFIX = ".gone"


class BlobStore:
    """A local folder of blobs, addressed by sha256. Only a row of the database makes one reachable."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "sha256"
        self._incoming = folder / "incoming"
        self._folders_on_disk: set[str] = set()
        for path in (self._blobs, self._incoming):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def clear_incoming(self) -> None:
        """Remove what an earlier process left half-written. Only at start, when nobody else writes here."""
        for path in self._incoming.iterdir():
            path.unlink()

    def all(self) -> Iterator[Path]:
        """Yield every blob; its name is its sha256."""
        yield from (path for path in self._blobs.glob("??/*") if path.suffix == "")

    def gone(self) -> list[Path]:
        """Return what a collection moved aside and did not come to remove."""
        return list(self._blobs.glob(f"??/*{GONE_SUFFIX}"))

    def incoming(self) -> list[Path]:
        """Return the uploads under way, and those that were cut off by the end of a server."""
        return list(self._incoming.iterdir())

    def path(self, sha256: str) -> Path:
        """Return where the blob lies, or would lie."""
        return self._blobs / sha256[:2] / sha256

    def read(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a part of a blob."""
        with self.path(sha256).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def writer(self) -> BlobWriter:
        """Return a writer for a new blob; use it in a `with` block."""
        return BlobWriter(self, f"{self._incoming}/{secrets.token_hex(16)}")

    def keep(self, *writers: BlobWriter) -> None:
        """Flush blobs to disk and give them their names; the same bytes that are there already are kept.

        Together they take fewer journeys to the disk than one by one.
        """
        for writer in writers:
            writer.flush()
        folders = {writer.name_in(self._folder_of(writer.sha256)) for writer in writers}
        for folder in folders:
            _flush_folder(folder)

    def _folder_of(self, sha256: str) -> str:
        """Return the folder in which a blob is to lie; it is there, and known to be on disk."""
        folder = f"{self._blobs}/{sha256[:2]}"
        if folder not in self._folders_on_disk:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, mode=0o700)
            _flush_folder(str(self._blobs))
            self._folders_on_disk.add(folder)
        return folder

    def probe(self) -> None:
        """Raise whatever keeps bytes from being stored; leaves nothing."""
        with self.writer() as writer:
            writer.write(b"probe")

    def total(self) -> tuple[int, int]:
        """Return how many blobs there are, and their bytes."""
        count = size = 0
        for path in self.all():
            with contextlib.suppress(FileNotFoundError):  # collected in this moment
                size += path.stat().st_size
                count += 1
        return count, size

    def put(self, data: bytes) -> str:
        """Store `data` and return its sha256."""
        with self.writer() as writer:
            writer.write(data)
            writer.keep()
            return writer.sha256


class BlobWriter:
    """One blob on its way in. What was not kept at the end of the block is gone."""

    def __init__(self, store: BlobStore, path: str) -> None:
        self._store = store
        self._digest = hashlib.sha256()
        self.size = 0
        self._path: str | None = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def flush(self) -> None:
        """Bring all bytes to disk."""
        os.fsync(self._file)

    def name_in(self, folder: str) -> str:
        """Give the blob its name in a folder, and return the folder."""
        assert self._path is not None, "a blob is kept once"
        os.replace(self._path, f"{folder}/{self.sha256}")
        self._path = None
        return folder


def _flush_folder(folder: str) -> None:
    """Make a rename inside `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
