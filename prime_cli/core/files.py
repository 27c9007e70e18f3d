"""Files that are either wholly there or not there: written aside, flushed, renamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


@contextlib.contextmanager
def file_written_aside(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file beside `path` to write to; on success it takes that name, on failure nothing is left.

    A reader sees the old bytes or the new ones, never a mixture. `mode` (for example 0o600) is set before the name
    appears, so a secret is never readable by others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode if mode is not None else 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_bytes_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write `data` to `path`; see `file_written_aside`."""
    with file_written_aside(path, mode=mode) as file:
        file.write(data)


def write_text_atomically(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write `text` as UTF-8; see `write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode(), mode=mode)


def write_json_atomically(path: Path, data: Any, *, mode: int | None = None) -> None:
    """Write `data` as JSON indented by two; see `write_bytes_atomically`."""
    write_text_atomically(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n", mode=mode)


@contextlib.contextmanager
def directory_written_aside(final: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of `final`; on success it takes that name, on failure nothing is left.

    An existing `final` is replaced. Readers that look for the name `final` never see a half-written directory. With
    `durable` that holds after a loss of power too: the files reach the disk before the name does.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    os.chmod(aside, 0o777 & ~_umask())
    try:
        yield aside
        if durable:
            for path in [*aside.rglob("*"), aside]:
                flush(path)
        if final.exists():
            shutil.rmtree(final)
        os.replace(aside, final)
        if durable:
            flush(final.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def remove_directory_at_once(folder: Path) -> None:
    """Remove a directory that readers look for by name: the name goes first, so none of them sees a half of it."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        os.replace(folder, Path(aside) / folder.name)


def flush(path: Path | str) -> None:
    """Make a file, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
