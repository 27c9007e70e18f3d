"""The end of a log, and what is added to it."""

from __future__ import annotations

import re
from pathlib import Path

_AT_MOST_BYTES = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class LogTail:
    """Reads the last megabyte of a log, and then whole lines as they come; a log that was begun anew is too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped_bytes = 0
        self._offset: int | None = None

    def read(self) -> list[str]:
        """Return the lines that are new since the last call."""
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                if self._offset is None or size < self._offset:
                    self._offset = self.skipped_bytes = max(0, size - _AT_MOST_BYTES)
                    file.seek(self._offset)
                    if self._offset:
                        self._offset += len(file.readline())
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        text = _ESCAPES.sub("", data[:end].decode(errors="replace"))
        # A progress bar rewrites its line; only what it said last counts.
        return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")[:-1]]
