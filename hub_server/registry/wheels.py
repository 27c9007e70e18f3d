"""What must be true of an uploaded wheel and of a source archive before anybody can install it."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from csv import reader
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from hub_server.errors import Malformed

_MAX_METADATA_BYTES = 10 * 1024**2
_MAX_UNPACKED_BYTES = 4 * 1024**3
_MAX_MEMBERS = 100_000


@dataclass(frozen=True)
class WheelFacts:
    """What a wheel says of itself: the bytes of its METADATA, and the Python versions it runs on."""

    metadata: bytes
    requires_python: str | None


def check_wheel_name(filename: str, environment_name: str, semantic_version: str) -> None:
    """Check that a wheel's file name is one, and names this environment and this version.

    Raises:
        Malformed: it does not.
    """
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise Malformed(f"{filename!r} is not the file name of a wheel: {error}") from None
    if name != canonicalize_name(environment_name):
        raise Malformed(
            f"the wheel {filename!r} does not install as {environment_name!r}; "
            "give the project and the environment the same name"
        )
    if version != parse_version(semantic_version):
        raise Malformed(f"the wheel {filename!r} is not of version {semantic_version}")


def parse_version(text: str) -> Version:
    """Read a version.

    Raises:
        Malformed: it is not one by the packaging rules.
    """
    try:
        return Version(text)
    except InvalidVersion:
        raise Malformed(f"{text!r} is not a version; use one such as 0.1.0 or 1.2.0rc1") from None


def version_key(text: str) -> str:
    """Return the one spelling of a version by which it is compared: 1.0, 1.0.0 and v1.0 are the same.

    Raises:
        Malformed: it is no version.
    """
    return canonicalize_version(parse_version(text))


def read_wheel(path: Path, filename: str) -> WheelFacts:
    """Check the structure of the wheel at `path`, uploaded as `filename`, and return what it says of itself.

    Raises:
        Malformed: it is not a zip, names files outside itself or twice, unpacks to too much, or its METADATA and RECORD
            are missing or contradict the file name or the contents.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, filename)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Malformed(f"the wheel {filename!r} is not a readable zip file: {error}") from None


def _read_archive(archive: zipfile.ZipFile, filename: str) -> WheelFacts:
    names = [info.filename for info in archive.infolist()]
    if len(names) > _MAX_MEMBERS or sum(info.file_size for info in archive.infolist()) > _MAX_UNPACKED_BYTES:
        raise Malformed(f"the wheel {filename!r} unpacks to more than this hub takes")
    if len(set(names)) != len(names):
        raise Malformed(f"the wheel {filename!r} has the same file twice")
    for name in names:
        _check_member_name(name, filename)
    folder = _dist_info(names, filename)
    facts = _read_metadata(_read_member(archive, f"{folder}/METADATA", filename), filename)
    recorded = _recorded_names(_read_member(archive, f"{folder}/RECORD", filename))
    unsigned = {f"{folder}/RECORD.jws", f"{folder}/RECORD.p7s"}
    present = {name for name in names if not name.endswith("/")} - unsigned
    if missing := sorted(present ^ (recorded - unsigned)):
        raise Malformed(f"the RECORD of {filename!r} does not match its contents: {', '.join(missing[:3])}")
    return facts


def _dist_info(names: list[str], filename: str) -> str:
    name, version, _, _ = parse_wheel_filename(filename)
    folders = {name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise Malformed(f"the wheel {filename!r} needs exactly one .dist-info folder, it has {len(folders)}")
    folder = folders.pop()
    stem, _, spelled = folder.removesuffix(".dist-info").partition("-")
    if canonicalize_name(stem) != name or parse_version(spelled or "?") != version:
        raise Malformed(f"the folder {folder!r} does not belong to the wheel {filename!r}")
    return folder


def _read_member(archive: zipfile.ZipFile, member: str, filename: str) -> bytes:
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise Malformed(f"the wheel {filename!r} has no {member}") from None
    if info.file_size > _MAX_METADATA_BYTES:
        raise Malformed(f"the file {member} of the wheel {filename!r} is too large")
    return archive.read(info)


def _read_metadata(data: bytes, filename: str) -> WheelFacts:
    name, version, _, _ = parse_wheel_filename(filename)
    headers = BytesHeaderParser().parsebytes(data)
    said_name, said_version = str(headers.get("Name", "")), str(headers.get("Version", ""))
    if canonicalize_name(said_name) != name or not said_version or parse_version(said_version) != version:
        raise Malformed(
            f"the METADATA of {filename!r} names {said_name or 'nothing'} {said_version or '(no version)'}, "
            f"not {name} {version}"
        )
    requires_python = headers.get("Requires-Python")
    return WheelFacts(data, str(requires_python)[:200] if requires_python else None)


def _recorded_names(data: bytes) -> set[str]:
    lines = data.decode("utf-8", errors="replace").splitlines()
    return {row[0] for row in reader(lines) if row}


def check_source_archive(path: Path, filename: str) -> None:
    """Check that the file at `path` is a tar.gz of plain files and folders inside itself.

    Raises:
        Malformed: it is not.
    """
    unpacked = 0
    try:
        with tarfile.open(path, "r:gz") as archive:
            for count, member in enumerate(archive, start=1):
                unpacked += member.size
                if unpacked > _MAX_UNPACKED_BYTES or count > _MAX_MEMBERS:
                    raise Malformed(f"the archive {filename!r} unpacks to more than this hub takes")
                if not (member.isfile() or member.isdir()):
                    raise Malformed(f"the archive {filename!r} holds {member.name!r}, which is no plain file")
                _check_member_name(member.name, filename)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise Malformed(f"{filename!r} is not a readable tar.gz archive: {error}") from None


def _check_member_name(name: str, filename: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise Malformed(f"{filename!r} names a file outside itself: {name!r}")
