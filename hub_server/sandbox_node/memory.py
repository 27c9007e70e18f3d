"""Whether this machine has memory for another sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hub_server.sandbox_node.specification import MEBIBYTE

_MEMINFO = Path("/proc/meminfo")
_READ_EVERY_S = 0.1
_LEAST_RESERVE = 256 * MEBIBYTE
_RESERVED_SHARE = 0.05


class MemoryHeadroom:
    """Tells whether more memory is available than what is kept back for the host and for sandboxes that grow.

    Limits of sandboxes are caps, and most use little: they are not added up.
    """

    def __init__(self, meminfo: Path = _MEMINFO, clock: Callable[[], float] = time.monotonic) -> None:
        self._meminfo, self._clock = meminfo, clock
        self._read_at, self._answer = float("-inf"), True

    def __call__(self) -> bool:
        """Return whether there is room; read at most every tenth of a second."""
        now = self._clock()
        if now - self._read_at >= _READ_EVERY_S:
            self._read_at, self._answer = now, self._has_room()
        return self._answer

    def _has_room(self) -> bool:
        try:
            lines = self._meminfo.read_text().splitlines()
        except OSError:  # no Linux: nobody tells
            return True
        kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        total, available = kibibytes.get("MemTotal", 0) * 1024, kibibytes.get("MemAvailable", 0) * 1024
        return available > max(_LEAST_RESERVE, _RESERVED_SHARE * total)
