"""An environment's source as one archive: which files belong, their content hash, packing and safe unpacking."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path, PurePosixPath

import pathspec

from prime_cli.core.errors import PrimeError

_ROOT_FILES = ("README.md", "pyproject.toml")
_LEFT_OUT = ("dist", "build", "__pycache__", "outputs")
_MAX_UNPACKED_BYTES = 4 * 1024**3


def source_files(folder: Path) -> list[PurePosixPath]:
    """Return the files that make up the environment in `folder`, relative to it, sorted.

    README.md, pyproject.toml and the `*.py` of the folder itself, and every file of its sub-folders; neither hidden
    files, links, build output nor what the folder's own .gitignore names.
    """
    ignored = _read_gitignore(folder)
    found: list[PurePosixPath] = []
    for root, folders, names in os.walk(folder):
        here = PurePosixPath(Path(root).relative_to(folder).as_posix())
        at_top = here == PurePosixPath(".")
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _LEFT_OUT
            and not name.endswith(".egg-info")
            and not ignored.match_file(f"{here / name}/")
        ]
        for name in names:
            path = here / name
            wanted = name in _ROOT_FILES or name.endswith(".py") if at_top else not name.startswith(".")
            file = folder / path
            if wanted and file.is_file() and not file.is_symlink() and not ignored.match_file(str(path)):
                found.append(path)
    return sorted(found, key=str)


def content_hash(folder: Path, files: list[PurePosixPath]) -> str:
    """Return the SHA-256 over the sorted relative paths, each as `file:PATH` and followed by the file's bytes."""
    digest = hashlib.sha256()
    for path in sorted(files, key=str):
        digest.update(f"file:{path}".encode())
        digest.update((folder / path).read_bytes())
    return digest.hexdigest()


def pack(folder: Path, files: list[PurePosixPath]) -> bytes:
    """Return a tar.gz of `files`. The same contents give the same bytes: no times, no owners, no order of the disk."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(files, key=str):
            data = (folder / path).read_bytes()
            member = tarfile.TarInfo(str(path))
            member.size, member.mode, member.mtime = len(data), 0o644, 0
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(archive_path: Path, destination: Path) -> None:
    """Write the files of a tar.gz into the folder `destination`.

    Raises:
        PrimeError: it is no tar.gz, unpacks to too much, or holds links or paths that lead out of the folder; then
            `destination` may hold some files, so give a folder that is written aside.
    """
    unpacked = 0
    try:
        with tarfile.open(archive_path, "r:gz") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or "\\" in member.name:
                    raise PrimeError(f"the archive names a file outside itself: {member.name!r}")
                if member.isdir():
                    continue
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    raise PrimeError(f"the archive holds {member.name!r}, which is no plain file")
                unpacked += member.size
                if unpacked > _MAX_UNPACKED_BYTES:
                    raise PrimeError("the archive unpacks to more than 4 GiB")
                target = destination / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise PrimeError(f"{archive_path.name} is not a readable tar.gz archive: {error}") from None


def _read_gitignore(folder: Path) -> pathspec.GitIgnoreSpec:
    try:
        lines = (folder / ".gitignore").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return pathspec.GitIgnoreSpec.from_lines(lines)
