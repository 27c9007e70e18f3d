"""Bytes by their hash: written aside, flushed to disk, renamed. A name in the store always has all its bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

GONE_SUFFIX = ".gone"


class BlobStore:
    """A local folder of blobs, addressed by sha256. Only a row of the database makes one reachable."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "sha256"
        self._incoming = folder / "incoming"
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
        return BlobWriter(self, self._incoming)

    def probe(self) -> None:
        """Raise whatever keeps bytes from being stored; leaves nothing."""
        with self.writer() as writer:
            writer.write(b"probe")
            writer.flushed()

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

    def __init__(self, store: BlobStore, folder: Path) -> None:
        self._store = store
        self._digest = hashlib.sha256()
        self.size = 0
        descriptor, name = tempfile.mkstemp(dir=folder)
        self._path: Path | None = Path(name)
        self._file: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def flushed(self) -> Path:
        """Return the file with all that was written so far, to be looked at before it is kept."""
        assert self._path is not None, "what was kept lies in the store"
        self._file.flush()
        return self._path

    def keep(self) -> None:
        """Flush to disk and give the blob its name; the same bytes that are there already are kept."""
        assert self._path is not None, "a blob is kept once"
        self._file.flush()
        os.fsync(self._file.fileno())
        final = self._store.path(self.sha256)
        final.parent.mkdir(mode=0o700, exist_ok=True)
        os.replace(self._path, final)
        self._path = None
        for folder in (final.parent, final.parent.parent):
            _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
