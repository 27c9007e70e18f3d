"""Where a backup goes: a tar file, or a folder that keeps many. Either has the whole of it at once, or nothing new."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Protocol, Self

from hub_server.backups.asides import folder_beside, locked
from hub_server.backups.manifest import BLOB_LIST, MANIFEST, Manifest, unpack_blob_list
from hub_server.blobs import FolderBlobs
from hub_server.errors import NotServing
from prime_cli.core.files import flush, write_text_atomically

SNAPSHOTS = "snapshots"
BLOBS = "blobs"
_LOCK = "backups.lock"
_IN_MEMORY = 32 * 1024**2


class Target(Protocol):
    """Takes the files of one backup; use it in a `with` block, which leaves nothing behind without `finish`.

    `room` is a folder for files on their way, gone with the block.
    """

    room: Path

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def has_blob(self, sha256: str, size: int) -> bool:
        """Say whether an earlier backup in the same place left this blob."""

    def add_blob(self, sha256: str, chunks: Iterator[bytes]) -> bool:
        """Take a blob; False when its bytes are others than its name says."""

    def add_file(self, path: str, data: Path) -> None:
        """Take a file."""

    def finish(self, manifest: Manifest) -> Path:
        """Make the backup appear, and return what it is called."""


def open_target(path: Path, made_at: str) -> Target:
    """Return the target that a path names: a `.tar` file that is not there yet, else a folder.

    Raises:
        NotServing: it is taken, or of a kind that is not written.
    """
    if path.suffix == ".tar":
        return TarTarget(path)
    if path.suffix in (".gz", ".zst", ".tgz", ".zip", ".xz", ".bz2"):
        raise NotServing(
            f"backups are not written as {path.suffix}", hint="use a folder or a .tar: what is in it is compressed"
        )
    return FolderTarget(path, made_at)


class TarTarget:
    """One tar file, written beside its name."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise NotServing(f"{path} is there already", hint="name another file; a backup never replaces one")
        if not path.parent.is_dir():
            raise NotServing(f"there is no folder {path.parent}", hint="make it first")
        self._path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.room = self._stack.enter_context(folder_beside(self._path))
        self._partial = self.room / "whole.tar"
        descriptor = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._file: BinaryIO = self._stack.enter_context(os.fdopen(descriptor, "r+b"))
        self._tar = self._stack.enter_context(tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def has_blob(self, sha256: str, size: int) -> bool:
        """Say no: a new file holds nothing."""
        return False

    def add_blob(self, sha256: str, chunks: Iterator[bytes]) -> bool:
        """Take a blob, read whole before a byte of it is written; False when its bytes are not those of its name."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(self.room)) as held:
            digest = hashlib.sha256()
            for chunk in chunks:
                digest.update(chunk)
                held.write(chunk)
            if digest.hexdigest() != sha256:
                return False
            size = held.tell()
            held.seek(0)
            self._add(f"{BLOBS}/sha256/{sha256[:2]}/{sha256}", held, size)
        return True

    def add_file(self, path: str, data: Path) -> None:
        """Take a file."""
        with data.open("rb") as file:
            self._add(path, file, data.stat().st_size)

    def finish(self, manifest: Manifest) -> Path:
        """Write the manifest and give the file its name."""
        text = manifest.model_dump_json(indent=2).encode()
        self._add(MANIFEST, io.BytesIO(text), len(text))
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        os.rename(self._partial, self._path)
        flush(self._path.parent)
        return self._path

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, int(time.time())
        self._tar.addfile(info, file)


class FolderTarget:
    """A folder of backups that share their blobs: a backup more adds what is new, and nothing is written twice."""

    def __init__(self, folder: Path, made_at: str) -> None:
        is_ours = (folder / SNAPSHOTS).is_dir() or (folder / _LOCK).is_file()
        if folder.exists() and not (folder.is_dir() and (is_ours or not any(folder.iterdir()))):
            raise NotServing(f"{folder} is not a folder of backups", hint="name an empty one, or one that is not there")
        self._folder = folder
        self._snapshots = folder / SNAPSHOTS
        self._name = made_at.replace(":", "").replace("-", "")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stack.enter_context(locked(self._folder / _LOCK, "another backup is being written to this folder"))
        self._snapshots.mkdir(mode=0o700, exist_ok=True)
        self._pool = FolderBlobs(self._folder / BLOBS)
        self._pool.clear_incoming()
        for left in self._snapshots.glob(".*"):
            shutil.rmtree(left)
        self.room = self._snapshots / ".room"
        self.room.mkdir(mode=0o700)
        self._aside = self._snapshots / f".{self._name}"
        self._aside.mkdir(mode=0o700)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for folder in (self._aside, self.room):
            shutil.rmtree(folder, ignore_errors=True)
        self._stack.close()

    def has_blob(self, sha256: str, size: int) -> bool:
        """Say whether the blob is there; its name was given to whole blobs only."""
        path = self._pool.path(sha256)
        return path.is_file() and path.stat().st_size == size

    def add_blob(self, sha256: str, chunks: Iterator[bytes]) -> bool:
        """Take a blob; False when its bytes are not those of its name."""
        with self._pool.writer() as writer:
            for chunk in chunks:
                writer.write(chunk)
            if writer.sha256 != sha256:
                return False
            writer.keep()
        return True

    def add_file(self, path: str, data: Path) -> None:
        """Take a file."""
        final = self._aside / path
        final.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, data.open("rb") as source:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
        flush(final.parent)

    def finish(self, manifest: Manifest) -> Path:
        """Write the manifest and give the backup its name among the others."""
        write_text_atomically(self._aside / MANIFEST, manifest.model_dump_json(indent=2), mode=0o600)
        flush(self._aside)
        final = self._snapshots / self._name
        os.rename(self._aside, final)
        flush(self._snapshots)
        return final

    def prune(self, keep: int) -> int:
        """Remove all but the newest `keep` backups, then the blobs that none of them names; return how many went."""
        names = snapshot_names(self._folder)
        for name in names[:-keep]:
            # Under a hidden name it is no backup any more, should this be cut off.
            hidden = self._snapshots / f".{name}"
            os.rename(self._snapshots / name, hidden)
            shutil.rmtree(hidden)
        lists = [(self._snapshots / name / BLOB_LIST).read_bytes() for name in names[-keep:]]
        named = {sha256 for data in lists for sha256, _ in unpack_blob_list(data)}
        for blob in self._pool.all():
            if blob.sha256 not in named:
                self._pool.path(blob.sha256).unlink()
        return len(names[:-keep])


def snapshot_names(folder: Path) -> list[str]:
    """Return the names of the backups in a folder, oldest first."""
    return sorted(path.name for path in (folder / SNAPSHOTS).iterdir() if not path.name.startswith("."))
