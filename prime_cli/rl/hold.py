"""Who works on a run's folder: a launcher holds it for as long as it lives, however it ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

from prime_cli.core.errors import BadInput
from prime_cli.rl.run_directory import RunDirectory


def hold(run: RunDirectory) -> TextIO:
    """Take hold of a run's folder until the file that is returned is closed, or this process ends.

    Raises:
        BadInput: another process holds it.
    """
    file = _lock(run).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BadInput(f"{run.path} is being worked on by another process", hint="end that one first") from None
    return file


def is_held(run: RunDirectory) -> bool | None:
    """Say whether a process of this machine holds a run's folder; None when nobody ever did."""
    try:
        with _lock(run).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return True
    return False


def _lock(run: RunDirectory) -> Path:
    return run.path / "lock"
