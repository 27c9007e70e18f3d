"""The last of what a command wrote."""

from __future__ import annotations

from collections import deque

from hub_server.sandbox_node.specification import MEBIBYTE


class LogRing:
    """Keeps the newest bytes, up to `most_bytes`."""

    def __init__(self, most_bytes: int = MEBIBYTE) -> None:
        self._pieces: deque[bytes] = deque()
        self._most_bytes, self._size, self._lost = most_bytes, 0, False

    def write(self, data: bytes) -> None:
        """Add bytes; the oldest go where they are too many."""
        self._pieces.append(data)
        self._size += len(data)
        while self._size > self._most_bytes:
            surplus = self._size - self._most_bytes
            oldest = self._pieces.popleft()
            self._size -= len(oldest)
            self._lost = True
            if len(oldest) > surplus:
                self._pieces.appendleft(oldest[surplus:])
                self._size += len(oldest) - surplus

    def text(self) -> str:
        """Return what is kept, from the start of a line on where something was lost."""
        data = b"".join(self._pieces)
        if self._lost:
            _, found, after = data.partition(b"\n")
            data = after if found else data
        return data.decode(errors="replace")
