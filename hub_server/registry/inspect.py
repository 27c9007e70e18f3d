"""Looks into the source of a version without unpacking it: what a folder holds, and the beginning of a file.

A version that was published as a wheel only shows what its wheel holds. Which files an archive has is read once and
kept in memory, since its bytes never change; of a file only what is asked for is unpacked.
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import hashlib
import tarfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from hub_server.blobs import BlobStore
from hub_server.errors import Malformed, NotFound, TooLarge
from hub_server.registry.tables import Release
from hub_server.registry.zips import StrictZip

MAX_SHOWN_BYTES = 1_000_000
# A file can be reached only by unpacking all that lies before it.
_MAX_UNPACKED_BYTES = 512 * 1024**2
_CHUNK_BYTES = 256 * 1024
_MAX_NAMES_COMPARED = 5000
_MAX_KEPT_FILES = 200_000
_EPOCH, _LAST_S = datetime(1970, 1, 1, tzinfo=UTC), 2**36  # times of members beyond that are nobody's clock
_TAR_ERRORS = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError)


@dataclass(frozen=True)
class SourceFile:
    """A file of an archive; `offset` is where its bytes begin in the unpacked tar, 0 in a wheel."""

    path: str
    size: int
    modified_at: datetime | None = None
    offset: int = 0


@dataclass
class SourceTree:
    """The files of one archive by their path, and what each folder holds by name; the top folder is ``""``."""

    files: dict[str, SourceFile] = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=lambda: {"": set()})

    def add(self, file: SourceFile) -> None:
        """Put a file and the folders above it in; the later of two with one path counts, as when unpacking."""
        self.files[file.path] = file
        below = file.path
        while below:
            above = below.rpartition("/")[0]
            self.folders.setdefault(above, set()).add(below)
            below = above

    def entries(self, folder: str) -> list[dict[str, Any]]:
        """Return what a folder holds, folders first, each as the wire shows it."""
        paths = sorted(self.folders[folder], key=lambda path: (path in self.files, path))
        return [self.entry(path) for path in paths]

    def entry(self, path: str) -> dict[str, Any]:
        """Return one file or folder as the wire shows it."""
        file = self.files.get(path)
        modified_at = file.modified_at if file else None
        return {
            "name": path.rpartition("/")[2],
            "path": path,
            "is_directory": file is None,
            "size": file.size if file else None,
            "modified_at": modified_at.isoformat() if modified_at else None,
        }


class SourceTrees:
    """The trees of the archives that were asked for last, by hash. Safe to use from many threads."""

    def __init__(self, max_files: int = _MAX_KEPT_FILES) -> None:
        self._max_files = max_files
        self._trees: OrderedDict[str, SourceTree] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, sha256: str, archive: Path, kind: str) -> SourceTree:
        """Return the tree of an archive, read when it is not here. Two threads may read it at once; one is kept."""
        with self._lock:
            tree = self._trees.get(sha256)
            if tree is not None:
                self._trees.move_to_end(sha256)
                return tree
        tree = _wheel_tree(archive) if kind == "wheel" else _tar_tree(archive)
        with self._lock:
            self._trees[sha256] = tree
            while sum(len(kept.files) for kept in self._trees.values()) > self._max_files and len(self._trees) > 1:
                self._trees.popitem(last=False)
        return tree


def look_into_release(
    blobs: BlobStore, trees: SourceTrees, release: Release, path: str, max_bytes: int
) -> tuple[dict[str, Any], str]:
    """Return what `look_into` finds in the source of a version, or in its wheel where there is none; and in which.

    Raises:
        Malformed, NotFound, TooLarge: as `look_into` does.
    """
    files = {file.kind: file for file in release.files}
    shown = files.get("source") or files["wheel"]
    with blobs.local(shown.sha256) as archive:
        tree = trees.of(shown.sha256, archive, shown.kind)
        return look_into(tree, archive, shown.kind, path, max_bytes), shown.kind


def look_into(tree: SourceTree, archive: Path, kind: str, path: str, max_bytes: int) -> dict[str, Any]:
    """Return a folder with its entries, or a file with at most `max_bytes` of its text.

    A file that is no UTF-8 text is marked as binary and shown as a line that says so.

    Raises:
        Malformed: the path leads out of the source.
        NotFound: there is no such file or folder; names the nearest.
        TooLarge: the file lies too deep in a large archive.
    """
    place = _inside(path)
    if place in tree.folders and place not in tree.files:
        return {
            "kind": "directory",
            "path": place,
            "entry": tree.entry(place),
            "entries": tree.entries(place),
            "truncated": False,
            "total_bytes": sum(file.size for name, file in tree.files.items() if _is_below(name, place)),
        }
    file = tree.files.get(place)
    if file is None:
        raise NotFound(f"{place} not found in the source{_nearest(tree, place)}")
    data = b"".join(_beginning(archive, kind, file, max_bytes))
    truncated = len(data) < file.size
    text = _text_of(data, truncated)
    whole = {} if truncated else {"content_hash": hashlib.sha256(data).hexdigest()}
    return {
        "kind": "file",
        "path": place,
        "entry": {**tree.entry(place), **whole},
        "content": f"({file.size} bytes that are no text)" if text is None else text,
        "is_binary": text is None,
        "truncated": truncated,
        "total_bytes": file.size,
    }


def _inside(path: str) -> str:
    """Return a path as the tree spells it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\\" in path or "\0" in path:
        raise Malformed(f"the path {path!r} leads out of the source")
    return "/".join(parts)


def _is_below(name: str, folder: str) -> bool:
    return not folder or name.startswith(f"{folder}/")


def _nearest(tree: SourceTree, place: str) -> str:
    known = [*tree.files, *tree.folders][:_MAX_NAMES_COMPARED]
    same_name = [path for path in known if path.rpartition("/")[2] == place.rpartition("/")[2]]
    offered = list(dict.fromkeys([*same_name, *difflib.get_close_matches(place, known, n=3)]))[:3]
    return f"; did you mean {' or '.join(offered)}?" if offered else ""


def _tar_tree(archive: Path) -> SourceTree:
    tree = SourceTree()
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                # Names that are no UTF-8 come out of the archive with halves of characters, which no answer can hold.
                place = PurePosixPath(member.name.encode(errors="surrogateescape").decode(errors="replace"))
                # The archive was checked when it was published; what is no plain file inside it is not shown.
                if member.isfile() and not place.is_absolute() and ".." not in place.parts:
                    modified_at = _EPOCH + timedelta(seconds=member.mtime) if 0 < member.mtime < _LAST_S else None
                    tree.add(SourceFile(place.as_posix(), member.size, modified_at, member.offset_data))
    except _TAR_ERRORS as error:
        raise Malformed(f"the source archive cannot be read: {error}") from None
    return tree


def _wheel_tree(archive: Path) -> SourceTree:
    tree = SourceTree()
    with archive.open("rb") as file:
        for name, member in StrictZip(file).members.items():
            tree.add(SourceFile(name, member.info.file_size))
    return tree


def _beginning(archive: Path, kind: str, file: SourceFile, max_bytes: int) -> Iterator[bytes]:
    """Yield at most `max_bytes` of a file, in pieces."""
    if kind != "wheel" and file.offset > _MAX_UNPACKED_BYTES:
        raise TooLarge(f"{file.path} lies too deep in a large archive to be shown; pull the environment instead")
    left = min(max_bytes, file.size)
    for piece in _wheel_pieces(archive, file) if kind == "wheel" else _tar_pieces(archive, file):
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def _wheel_pieces(archive: Path, file: SourceFile) -> Iterator[bytes]:
    with archive.open("rb") as opened:
        wheel = StrictZip(opened)
        yield from wheel.chunks(wheel.members[file.path])


def _tar_pieces(archive: Path, file: SourceFile) -> Iterator[bytes]:
    with gzip.open(archive, "rb") as unpacked:
        unpacked.seek(file.offset)
        left = file.size
        while left and (piece := unpacked.read(min(left, _CHUNK_BYTES))):
            left -= len(piece)
            yield piece


def _text_of(data: bytes, truncated: bool) -> str | None:
    """Return the bytes as text, without the part of a character at a cut; None when they are no text."""
    if b"\0" in data:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=not truncated)
    except UnicodeDecodeError:
        return None
