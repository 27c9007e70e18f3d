"""Every call that was paid for, kept before it is counted, so that none is paid for twice.

A line is a rollout (known by prompt, example, and the how-manieth it is of the two) or an answer of the reflection
model (known by what it was asked). A search that begins again with the same seed asks for the same things in the same
order: what is in the journal is answered from there, so it comes to where the last one was stopped, and goes on.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError

Key = tuple[str, ...]


class Journal:
    """The calls of one run on disk; where each of them lies is all that is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[tuple[Key, int], tuple[int, int]] = {}
        self._asked: Counter[Key] = Counter()
        self._end = 0
        self._read_places()
        try:
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        except OSError as error:
            raise PrimeError(f"{path} cannot be written: {error.strerror}") from None
        self._file.truncate(self._end)  # a line that a crash cut off

    @property
    def num_calls(self) -> int:
        """How many calls are kept."""
        return len(self._places)

    def next_number(self, key: Key) -> int:
        """Return the how-manieth call of this key is asked for now, counted from the beginning of the search."""
        self._asked[key] += 1
        return self._asked[key] - 1

    def find(self, key: Key, number: int) -> dict[str, Any] | None:
        """Return what came of a call, or None when it was not made."""
        place = self._places.get((key, number))
        if place is None:
            return None
        found: dict[str, Any] = json.loads(os.pread(self._file.fileno(), place[1], place[0]))
        return found

    def add(self, key: Key, number: int, record: dict[str, Any]) -> None:
        """Keep what came of a call.

        Raises:
            PrimeError: it cannot be written, for example because the disk is full.
        """
        line = json.dumps({"key": list(key), "number": number, **record}, default=str, ensure_ascii=False)
        data = f"{line}\n".encode()
        try:
            if os.pwrite(self._file.fileno(), data, self._end) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise PrimeError(f"{self._path} cannot be written: {error.strerror}") from None
        self._places[key, number] = (self._end, len(data))
        self._end += len(data)

    def close(self) -> None:
        """Flush to the disk and close."""
        os.fsync(self._file.fileno())
        self._file.close()

    def _read_places(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    record = json.loads(line)
                    key, number = tuple(record["key"]), int(record["number"])
                except (ValueError, KeyError, TypeError):
                    raise PrimeError(f"{self._path} is damaged after byte {self._end}") from None
                self._places[key, number] = (self._end, len(line))
                self._end += len(line)
