"""Ranges of user ids, one for each live sandbox of the host.

Two sandboxes with a user id in common could signal each other's helper processes and would share the kernel's
per-user limits. Each range is a byte of one file of the host; whoever holds the lock on the byte has the range, and
the kernel gives it back when the holder dies.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

RANGE = 65536  # ids in an image go from 0 to 65535


@dataclass(frozen=True)
class IdRange:
    """Ids of the host that are 0 to 65535 inside one sandbox; the same numbers for users and groups."""

    number: int
    first: int

    @property
    def mapping(self) -> str:
        """Return the line for /proc/PID/uid_map."""
        return f"0 {self.first} {RANGE}"


class IdRanges:
    """The ranges that this process may take, in turn, so that one just given back rests the longest."""

    def __init__(self, locks: Path, first: int, count: int) -> None:
        self._first, self._count = first, count
        self._held: set[int] = set()
        self._next = os.getpid() % count  # launchers that begin at different places seldom meet
        self._file = os.open(locks, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> IdRange:
        """Take a range that no live sandbox of this host has.

        Raises:
            OSError: all are taken.
        """
        for _ in range(self._count):
            number, self._next = self._next, (self._next + 1) % self._count
            if number in self._held:
                continue
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except BlockingIOError:
                continue
            self._held.add(number)
            return IdRange(number, self._first + number * RANGE)
        raise OSError(f"all {self._count} ranges of user ids are taken by sandboxes of this host")

    def give_back(self, taken: IdRange) -> None:
        """Let others have a range; no process with its ids may be left."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, taken.number)
        self._held.discard(taken.number)
