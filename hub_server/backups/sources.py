"""Where a backup is read from: a tar file or a folder of backups. Nothing is believed before its hash is right."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from hub_server.backups.manifest import BLOB_LIST, MANIFEST, Manifest, Member, read_manifest, unpack_blob_list
from hub_server.backups.targets import BLOBS, SNAPSHOTS, snapshot_names
from hub_server.errors import NotServing

_CHUNK_BYTES = 1024**2


class Source(Protocol):
    """The files of one backup."""

    name: str

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def open(self, path: str) -> IO[bytes]:
        """Open a file; FileNotFoundError when the backup has none of this name."""


class TarSource:
    """A tar file."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._tar = self._stack.enter_context(tarfile.open(self._path, "r:"))
            self._members = {member.name: member for member in self._tar if member.isreg()}
        except (tarfile.TarError, OSError) as error:
            self._stack.close()
            raise NotServing(f"{self.name} is not a whole tar file: {error}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def open(self, path: str) -> IO[bytes]:
        """Open a file of the backup."""
        if path not in self._members:
            raise FileNotFoundError(path)
        file = self._tar.extractfile(self._members[path])
        assert file is not None, "only regular files are listed"
        return file


class FolderSource:
    """One backup of a folder, the newest when none is named."""

    def __init__(self, folder: Path, snapshot: str | None) -> None:
        names = snapshot_names(folder) if (folder / SNAPSHOTS).is_dir() else []
        if not names:
            raise NotServing(f"there is no backup in {folder}")
        if snapshot is not None and snapshot not in names:
            raise NotServing(f"there is no backup {snapshot!r} in {folder}", hint=f"there are {', '.join(names)}")
        self._folder = folder
        self._snapshot = folder / SNAPSHOTS / (snapshot or names[-1])
        self.name = str(self._snapshot)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def open(self, path: str) -> IO[bytes]:
        """Open a file of the backup, a blob from those of all backups."""
        folder = self._folder if path.startswith(f"{BLOBS}/") else self._snapshot
        return (folder / path).open("rb")


def open_source(path: Path, snapshot: str | None = None) -> Source:
    """Return the backup at a path.

    Raises:
        NotServing: there is none, or not the one that is asked for.
    """
    if path.is_dir():
        return FolderSource(path, snapshot)
    if snapshot is not None:
        raise NotServing(f"{path} is not a folder of backups, so there is none to choose")
    if not path.is_file():
        raise NotServing(f"there is no backup {path}")
    return TarSource(path)


class Verified:
    """A backup whose parts are handed out only with the bytes that its manifest names."""

    def __init__(self, source: Source) -> None:
        self._source = source
        try:
            with source.open(MANIFEST) as file:
                self.manifest: Manifest = read_manifest(file.read(), source.name)
        except FileNotFoundError:
            raise NotServing(f"{source.name} is not a backup of a hub, or only a part of one") from None
        self._members = {member.path: member for member in self.manifest.members}

    def paths(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder of the backup."""
        return [path for path in self._members if path.startswith(f"{folder}/")]

    def member(self, path: str) -> Member:
        """Return what the manifest says of a file."""
        return self._members[path]

    def copy(self, path: str, to: Path) -> Path:
        """Copy a file.

        Raises:
            NotServing: it is missing or its bytes are not those of the manifest.
        """
        digest = hashlib.sha256()
        with to.open("wb") as out:
            for chunk in self._chunks(path):
                digest.update(chunk)
                out.write(chunk)
        if digest.hexdigest() != self._members[path].sha256:
            raise _damaged(self._source, path)
        return to

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file.

        Raises:
            NotServing: it is missing or its bytes are not those of the manifest.
        """
        data = b"".join(self._chunks(path))
        if hashlib.sha256(data).hexdigest() != self._members[path].sha256:
            raise _damaged(self._source, path)
        return data

    def blobs(self) -> list[tuple[str, int]]:
        """Return hash and size of each blob.

        Raises:
            NotServing: their list is damaged.
        """
        listed = list(unpack_blob_list(self.read(BLOB_LIST)))
        if len(listed) != self.manifest.blob_count:
            raise _damaged(self._source, BLOB_LIST)
        return listed

    def blob(self, sha256: str) -> Iterator[bytes]:
        """Yield the bytes of a blob, then make sure that they were the right ones.

        Raises:
            NotServing: at the end, when they were not; at once, when it is missing.
        """
        path = f"{BLOBS}/sha256/{sha256[:2]}/{sha256}"
        digest = hashlib.sha256()
        for chunk in self._chunks(path):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise _damaged(self._source, path)

    def _chunks(self, path: str) -> Iterator[bytes]:
        try:
            with self._source.open(path) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except (OSError, tarfile.TarError):
            raise _damaged(self._source, path) from None


def _damaged(source: Source, path: str) -> NotServing:
    return NotServing(f"{source.name} is damaged: {path} is missing or has other bytes", hint="use another backup")
