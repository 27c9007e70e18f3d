"""What must be true of an uploaded source archive before anybody unpacks it.

A tar may say less than its readers assume: where it ends, that a name comes once, or how large the header is that
they hold in memory. Here all of that has to be so, and every byte has to be there, to the checksum at the end.
"""

from __future__ import annotations

import gzip
import tarfile
import unicodedata
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from hub_server.errors import Malformed
from hub_server.registry.zips import MAX_RATIO, MAX_UNPACKED_BYTES, RATIO_COUNTS_FROM_BYTES, check_member_name

_MAX_MEMBERS = 100_000
_MAX_HEADER_BYTES = 1024**2
_END_BYTES = 2 * tarfile.BLOCKSIZE
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def check_source_archive(path: Path, filename: str) -> None:
    """Check that the file at `path` is a whole tar.gz of plain files and folders inside itself, each named once.

    Raises:
        Malformed: it is not.
    """
    most = _most_unpacked(path.stat().st_size)
    try:
        with gzip.open(path, "rb") as unpacked:
            _check_archive(_Unpacked(cast(BinaryIO, unpacked), most))
    except Malformed as error:
        raise Malformed(f"the archive {filename!r} {error.detail}") from None
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError) as error:
        raise Malformed(f"{filename!r} is not a readable tar.gz archive: {error}") from None


def _most_unpacked(packed_bytes: int) -> int:
    """Return what an archive of this size may unpack to: what compresses better was made to fill a disk."""
    return min(MAX_UNPACKED_BYTES, max(RATIO_COUNTS_FROM_BYTES, MAX_RATIO * packed_bytes))


class _Unpacked:
    """The unpacked bytes of an archive, of which no reader gets more than it may."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self.most = file, most
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        """Read what belongs to one header; file contents are skipped by seeking."""
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise Malformed("has a header that is too large")
        return self._file.read(size)

    def seek(self, place: int) -> int:
        """Go to a place, no further than the archive may unpack to."""
        if not 0 <= place <= self.most:
            raise Malformed(f"unpacks to more than {self.most} bytes, which is more than this hub takes")
        return self._file.seek(place)


def _check_archive(unpacked: _Unpacked) -> None:
    places: dict[str, bool] = {}
    with tarfile.open(fileobj=cast(BinaryIO, unpacked), mode="r:") as archive:
        for count, member in enumerate(archive, start=1):
            if count > _MAX_MEMBERS:
                raise Malformed(f"holds more than {_MAX_MEMBERS} files, which is more than this hub takes")
            if member.type not in _PLAIN or member.issparse() or member.size < 0 or (member.isdir() and member.size):
                raise Malformed(f"holds {member.name!r}, which is no plain file")
            check_member_name(member.name)
            _note_place(places, member.name, is_folder=member.isdir())
        end = archive.offset
    for place in places:
        above = place.rpartition("/")[0]
        while above:
            if places.get(above) is False:
                raise Malformed(f"has {above!r} as a file and as a folder")
            above = above.rpartition("/")[0]
    _check_end(unpacked, end)


def _note_place(places: dict[str, bool], name: str, *, is_folder: bool) -> None:
    """Give a file a place of its own on every kind of disk; a folder may be named again."""
    place = unicodedata.normalize("NFC", PurePosixPath(name).as_posix()).casefold()
    if place in places and not (is_folder and places[place]):
        raise Malformed(f"has the same file twice: {name!r}")
    places[place] = is_folder


def _check_end(unpacked: _Unpacked, end: int) -> None:
    """Check that an end mark follows the last file, and nothing follows that: some readers would go on there."""
    unpacked.seek(end)
    size = 0
    while chunk := unpacked.read(_MAX_HEADER_BYTES):
        size += len(chunk)
        if chunk.count(0) != len(chunk):
            raise Malformed("has something behind its last file that is not part of it")
        if end + size > unpacked.most:
            raise Malformed(f"unpacks to more than {unpacked.most} bytes, which is more than this hub takes")
    if size < _END_BYTES:
        raise Malformed("ends too early")
