"""What must be true of an uploaded wheel before anybody can install it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import urlsplit

from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from hub_server.errors import Malformed
from hub_server.registry.entries import importable_modules
from hub_server.registry.zips import StrictZip

_MAX_METADATA_BYTES = 10 * 1024**2
_MAX_VERSION = 255  # as long as a file name
_MAX_REQUIRES_PYTHON = 200  # the width of its column
_REMOTE_SCHEMES = ("https", "http", "git+https", "git+http", "git+ssh", "git+git")
_RECORD_HASHES = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class WheelFacts:
    """What a wheel says of itself: the bytes of its METADATA, and what was read in them.

    `url_dependencies` are those of `requires_dist` that name an address in place of a version; `modules` what can be
    imported once it is installed, without what lies inside packages.
    """

    metadata: bytes
    name: str
    version: str
    summary: str | None
    requires_python: str | None
    requires_dist: list[str]
    url_dependencies: list[str] = field(default_factory=list)
    readme: str = ""
    readme_type: str = ""
    modules: frozenset[str] = frozenset()


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
    """Check the wheel at `path`, uploaded as `filename`, to its last byte, and return what it says of itself.

    Raises:
        Malformed: it is not a plain zip, names files outside itself or twice, unpacks to too much, its METADATA
            contradicts the file name, or its RECORD the contents.
    """
    _parsed_name(filename)
    try:
        with path.open("rb") as file:
            return _read_archive(StrictZip(file), filename)
    except Malformed as error:
        raise Malformed(f"the wheel {filename!r} {error.detail}") from None


def _parsed_name(filename: str) -> tuple[str, Version]:
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise Malformed(f"{filename!r} is not the file name of a wheel: {error}") from None
    return str(name), version


def _read_archive(archive: StrictZip, filename: str) -> WheelFacts:
    folder = _dist_info(archive, filename)
    facts = _read_metadata(archive.read(f"{folder}/METADATA", _MAX_METADATA_BYTES), filename)
    _check_wheel_version(archive.read(f"{folder}/WHEEL", _MAX_METADATA_BYTES))
    _check_record(archive, folder)
    return replace(facts, modules=importable_modules(archive.members))


def _dist_info(archive: StrictZip, filename: str) -> str:
    name, version = _parsed_name(filename)
    folders = {member.split("/")[0] for member in archive.members if member.split("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise Malformed(f"needs exactly one .dist-info folder, it has {len(folders)}")
    folder = folders.pop()
    stem, _, spelled = folder.removesuffix(".dist-info").partition("-")
    if canonicalize_name(stem) != name or not _is_version(spelled, version):
        raise Malformed(f"has the folder {folder!r}, which does not belong to it")
    return folder


def _is_version(text: str, version: Version) -> bool:
    """Say whether a text spells this version; numbers of thousands of digits, which cannot be read, spell none."""
    return 0 < len(text) <= _MAX_VERSION and parse_version(text) == version


def _read_metadata(data: bytes, filename: str) -> WheelFacts:
    name, version = _parsed_name(filename)
    headers: RawMetadata = parse_email(data)[0]
    said_name, said_version = headers.get("name", ""), headers.get("version", "")
    if canonicalize_name(said_name) != name or not _is_version(said_version, version):
        said = f"{said_name[:100] or 'nothing'} {said_version[:100] or '(no version)'}"
        raise Malformed(f"has a METADATA that names {said}, not {name} {version}")
    if not headers.get("metadata_version"):
        raise Malformed("has a METADATA without Metadata-Version, which installers need")
    requires_python = headers.get("requires_python")
    if requires_python is not None:
        _check_requires_python(requires_python)
    return WheelFacts(
        metadata=data,
        name=said_name,
        version=said_version,
        summary=headers.get("summary"),
        requires_python=requires_python or None,
        requires_dist=headers.get("requires_dist", []),
        url_dependencies=_url_dependencies(headers.get("requires_dist", [])),
        readme=headers.get("description") or "",
        readme_type=headers.get("description_content_type") or "",
    )


def _check_requires_python(text: str) -> None:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise Malformed(f"has the Requires-Python {text!r}, which installers cannot read") from None
    if len(text) > _MAX_REQUIRES_PYTHON:
        raise Malformed(f"has a Requires-Python of more than {_MAX_REQUIRES_PYTHON} characters")


def _url_dependencies(requires_dist: list[str]) -> list[str]:
    found = []
    for text in requires_dist:
        try:
            url = Requirement(text).url
        except InvalidRequirement:
            raise Malformed(f"depends on {text!r}, which installers cannot read") from None
        if url is None:
            continue
        if _scheme_of(url) not in _REMOTE_SCHEMES:
            raise Malformed(f"depends on {text!r}, which nobody can get from another machine")
        found.append(text)
    return found


def _scheme_of(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:  # such as half an IPv6 address
        return ""


def _check_wheel_version(data: bytes) -> None:
    said = str(HeaderParser().parsestr(data.decode("utf-8", errors="replace")).get("Wheel-Version", ""))
    if said.split(".")[0] != "1":
        raise Malformed(f"is of the wheel version {said or '(none)'!r}; installers know 1")


def _check_record(archive: StrictZip, folder: str) -> None:
    """Check that RECORD names every file once, with the hash and the size that it has."""
    record = f"{folder}/RECORD"
    unsigned = {record, f"{folder}/RECORD.jws", f"{folder}/RECORD.p7s"}
    rows = _record_rows(archive.read(record, _MAX_METADATA_BYTES))
    if differing := sorted((archive.members.keys() - unsigned) ^ (rows.keys() - unsigned)):
        raise Malformed(f"has a RECORD that does not match its contents: {', '.join(differing[:3])}")
    for name, member in archive.members.items():
        if name in unsigned:
            continue
        algorithm, _, expected = rows[name][0].partition("=")
        if algorithm not in _RECORD_HASHES:
            raise Malformed(f"has a RECORD without a sha256 of {name}")
        digest, size = hashlib.new(algorithm), 0
        for chunk in archive.chunks(member):
            digest.update(chunk)
            size += len(chunk)
        found = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        if found != expected.rstrip("=") or rows[name][1] not in ("", str(size)):
            raise Malformed(f"has a RECORD that does not match its contents: {name} has another hash or size")


def _record_rows(data: bytes) -> dict[str, tuple[str, str]]:
    rows: dict[str, tuple[str, str]] = {}
    try:
        for row in csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True):
            if not row:
                continue
            if row[0] in rows:
                raise Malformed(f"has a RECORD that lists {row[0]!r} twice")
            rows[row[0]] = (row[1] if len(row) > 1 else "", row[2] if len(row) > 2 else "")
    except (csv.Error, UnicodeDecodeError):
        raise Malformed("has a RECORD that cannot be read") from None
    return rows
