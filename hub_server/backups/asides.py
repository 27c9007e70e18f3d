"""Folders in which something is put together beside its final name. What a killed process left is cleared away."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hub_server.errors import NotServing

_LOCK = "lock"
_PREFIX = ".prime-hub.partial."
_YOUNG_S = 60


@contextmanager
def folder_beside(final: Path) -> Iterator[Path]:
    """Yield a folder (0700) beside `final` that is gone at the end, unless it was renamed.

    Those that killed processes left there for any name are removed first; one in which somebody works is locked.
    """
    for left in final.parent.glob(f"{_PREFIX}*"):
        if not (left / _LOCK).exists() and time.time() - left.stat().st_mtime < _YOUNG_S:
            continue  # made in this moment, and not locked yet
        try:
            with locked(left / _LOCK, "alive"):
                shutil.rmtree(left)
        except NotServing:
            continue
    aside = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=final.parent))
    try:
        with locked(aside / _LOCK, "another process took this for a dead one's"):
            yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def locked(path: Path, words: str) -> Iterator[None]:
    """Hold a file's lock; the kernel gives it back however this process ends.

    Raises:
        NotServing: with these `words`, when somebody else holds it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotServing(words, hint="wait until it has ended, and try again") from None
        yield
