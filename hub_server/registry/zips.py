"""Reads a zip file as strictly as a registry must: every reader of the same bytes has to see the same files.

Zip has two lists of its contents (the central directory and a header before each file) and no rule about what lies
between them. Installers that trust different ones install different code from one file, so both have to agree here,
with nothing before, between or after them. Overlapping members, the densest kind of zip bomb, fall with the same rule.
"""

from __future__ import annotations

import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from hub_server.errors import Malformed

_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")
_END_MAGIC, _LOCAL_MAGIC, _DESCRIPTOR_MAGIC = b"PK\x05\x06", b"PK\x03\x04", b"PK\x07\x08"
_HAS_DESCRIPTOR, _IS_UTF8, _DEFLATE_HINTS = 0x0008, 0x0800, 0x0006
_IN_ZIP64 = 0xFFFFFFFF
_UNICODE_PATH = 0x7075
_CHUNK_BYTES = 256 * 1024
MAX_UNPACKED_BYTES = 4 * 1024**3
# What compresses better than this and is large besides was made to fill a disk.
MAX_RATIO = 100
RATIO_COUNTS_FROM_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class Member:
    """A file of the archive, and where its bytes begin."""

    info: zipfile.ZipInfo
    data_start: int

    @property
    def name(self) -> str:
        """The path inside the archive."""
        return self.info.filename


class StrictZip:
    """A zip file that was found sound when it was opened; `members` are its files, folders left out."""

    def __init__(self, file: BinaryIO) -> None:
        """Read both lists of contents.

        Raises:
            Malformed: it is no zip file, or not a plain one. The words follow on the file's name.
        """
        self._file = file
        try:
            with zipfile.ZipFile(file) as archive:
                infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError, struct.error) as error:
            raise Malformed(f"is not a readable zip file: {error}") from None
        _check_names(infos)
        directory_start = self._check_end(len(infos))
        self._check_sizes(infos)
        ends = [info.header_offset for info in infos[1:]] + [directory_start]
        if infos and infos[0].header_offset != 0:
            raise Malformed("has something before its first file")
        members = [self._member(info, end) for info, end in zip(infos, ends, strict=True)]
        self.members = {member.name: member for member in members if not member.info.is_dir()}

    def read(self, name: str, limit: int) -> bytes:
        """Return a whole file of at most `limit` bytes.

        Raises:
            Malformed: it is not there, larger, or damaged.
        """
        member = self.members.get(name)
        if member is None:
            raise Malformed(f"has no {name}")
        if member.info.file_size > limit:
            raise Malformed(f"has a {name} that is too large")
        return b"".join(self.chunks(member))

    def chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of a file, never more than it declares.

        Raises:
            Malformed: its length or its checksum is another one than declared, or there is more in it.
        """
        info, crc, size = member.info, 0, 0
        for chunk in self._unpacked(member):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
            yield chunk
        if size != info.file_size or crc != info.CRC:
            raise Malformed(f"is damaged: {info.filename} has another length or checksum than declared")

    def _unpacked(self, member: Member) -> Iterator[bytes]:
        info = member.info
        self._file.seek(member.data_start)
        left, allowed = info.compress_size, info.file_size
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if info.compress_type == zipfile.ZIP_DEFLATED else None
        while left:
            packed = self._file.read(min(left, _CHUNK_BYTES))
            if not packed:
                raise Malformed(f"is damaged: {info.filename} ends too early")
            left -= len(packed)
            if inflater is None:
                yield packed
                continue
            while not inflater.eof:
                try:
                    # One byte more than is allowed shows that there is more, without unpacking all of it.
                    chunk = inflater.decompress(packed, min(_CHUNK_BYTES, allowed + 1))
                except zlib.error as error:
                    raise Malformed(f"is damaged: {info.filename} cannot be unpacked ({error})") from None
                allowed -= len(chunk)
                if allowed < 0:
                    raise Malformed(f"is damaged: {info.filename} holds more than it declares")
                packed = inflater.unconsumed_tail
                if chunk:
                    yield chunk
                elif not packed:
                    break  # more can come only from the next piece; without a chunk nothing is held back either
            if inflater.eof and (left or inflater.unused_data):
                raise Malformed(f"is damaged: {info.filename} holds more than it declares")
        if inflater is not None and not inflater.eof:
            raise Malformed(f"is damaged: {info.filename} ends too early")

    def _check_end(self, count: int) -> int:
        """Check the record at the very end of the file, and return where the central directory begins."""
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(size - _END.size, 0))
        record = self._file.read(_END.size)
        if len(record) < _END.size or not record.startswith(_END_MAGIC):
            raise Malformed("has something after its end, or a comment")
        _, disk, first_disk, here, total, length, start, comment = _END.unpack(record)
        if _IN_ZIP64 in (length, start) or total == 0xFFFF:
            raise Malformed("is in the zip64 form, which only files larger than this hub takes need")
        if (disk, first_disk, comment) != (0, 0, 0) or here != total or total != count:
            raise Malformed("does not hold the files that its end announces")
        if start + length + _END.size != size:
            raise Malformed("has something before its end that is not part of it")
        return int(start)

    def _check_sizes(self, infos: list[zipfile.ZipInfo]) -> None:
        packed, unpacked = self._file.seek(0, os.SEEK_END), sum(info.file_size for info in infos)
        is_bomb = unpacked > RATIO_COUNTS_FROM_BYTES and unpacked > MAX_RATIO * packed
        if unpacked > MAX_UNPACKED_BYTES or is_bomb:
            raise Malformed(f"unpacks to {unpacked} bytes, which is more than this hub takes")

    def _member(self, info: zipfile.ZipInfo, end: int) -> Member:
        """Check the header before a file against the central directory; `end` is where the next one begins."""
        name = info.filename
        _check_kind(info)
        self._file.seek(info.header_offset)
        record = self._file.read(_LOCAL.size)
        if len(record) < _LOCAL.size or not record.startswith(_LOCAL_MAGIC):
            raise Malformed(f"has no header before {name}")
        _, _, flags, method, _, _, crc, packed, unpacked, name_size, extra_size = _LOCAL.unpack(record)
        spelled = self._file.read(name_size)
        encoding = "utf-8" if info.flag_bits & _IS_UTF8 else "cp437"
        if spelled != info.orig_filename.encode(encoding) or (flags, method) != (info.flag_bits, info.compress_type):
            raise Malformed(f"calls {name} by two names")
        data_start = info.header_offset + _LOCAL.size + name_size + extra_size
        data_end = data_start + info.compress_size
        declared = (crc, packed, unpacked)
        listed = (info.CRC, info.compress_size, info.file_size)
        if flags & _HAS_DESCRIPTOR:
            self._check_descriptor(info, data_end, end)
            fits = all(value in (0, _IN_ZIP64, real) for value, real in zip(declared, listed, strict=True))
        else:
            fits = all(value in (_IN_ZIP64, real) for value, real in zip(declared, listed, strict=True))
            fits = fits and data_end == end
        if not fits:
            raise Malformed(f"says two things about the size of {name}, or hides something behind it")
        return Member(info, data_start)

    def _check_descriptor(self, info: zipfile.ZipInfo, data_end: int, end: int) -> None:
        """Check the record behind a file that was written without knowing its size before."""
        self._file.seek(data_end)
        length = end - data_end
        record = self._file.read(length) if length in (12, 16, 20, 24) else b""
        marked = record.startswith(_DESCRIPTOR_MAGIC) and length in (16, 24)
        form = "<LLL" if length in (12, 16) else "<LQQ"
        plain = record[4:] if marked else record
        expected = (info.CRC, info.compress_size, info.file_size)
        if len(plain) != struct.calcsize(form) or struct.unpack(form, plain) != expected:
            raise Malformed(f"says two things about the size of {info.filename}, or hides something behind it")


def check_member_name(name: str) -> None:
    """Check that a path stays inside its archive.

    Raises:
        Malformed: it does not.
    """
    path = PurePosixPath(name)
    has_drive = len(name) > 1 and name[1] == ":"
    if path.is_absolute() or ".." in path.parts or "\\" in name or has_drive or any(char < " " for char in name):
        raise Malformed(f"names a file outside itself: {name!r}")


def _check_names(infos: list[zipfile.ZipInfo]) -> None:
    """Check that each file has one place of its own on every kind of disk, those that fold case among them."""
    places: dict[str, bool] = {}
    for info in infos:
        name = info.filename
        check_member_name(info.orig_filename)
        if name != info.orig_filename or PurePosixPath(name).as_posix() != name.rstrip("/") or name.endswith("//"):
            raise Malformed(f"spells a path in an unusual way: {info.orig_filename!r}")
        place = unicodedata.normalize("NFC", name.rstrip("/")).casefold()
        if place in places:
            raise Malformed(f"has the same file twice: {name!r}")
        places[place] = info.is_dir()
    for place in places:
        above = place.rpartition("/")[0]
        while above:
            if places.get(above) is False:
                raise Malformed(f"has {above!r} as a file and as a folder")
            above = above.rpartition("/")[0]


def _check_kind(info: zipfile.ZipInfo) -> None:
    """Check that a member is a plain file or folder, packed in a way that every installer knows."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (info.is_dir() and info.file_size):
        raise Malformed(f"holds {info.filename!r}, which is no plain file")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Malformed(f"packs {info.filename!r} in a way that not every installer reads")
    if info.flag_bits & ~(_HAS_DESCRIPTOR | _IS_UTF8 | _DEFLATE_HINTS):
        raise Malformed(f"encrypts {info.filename!r}, or marks it in a way that not every installer reads")
    if any(tag == _UNICODE_PATH for tag in _extra_tags(info.extra)):
        raise Malformed(f"calls {info.filename!r} by two names")


def _extra_tags(extra: bytes) -> Iterator[int]:
    while len(extra) >= 4:
        tag, length = struct.unpack_from("<HH", extra)
        yield tag
        extra = extra[4 + length :]
