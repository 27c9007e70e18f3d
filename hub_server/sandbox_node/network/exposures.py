"""Which ports of which sandboxes are reachable by URL. The URL is the capability: who knows it may use the port."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import NamedTuple

from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.sandbox import Sandbox

MOST_OF_ONE_SANDBOX = 64
# The first part of the paths of exposed ports; the id and the path inside follow.
PATH = "/exposed/"


class TooManyExposures(SandboxError):
    """A sandbox has as many exposed ports as it may."""


@dataclass(frozen=True)
class Exposure:
    """A port that is reachable by URL."""

    id: str  # cannot be guessed
    sandbox_id: str
    port: int
    name: str | None
    created_at: float  # seconds since 1970

    def path(self) -> str:
        """Return the path of its URL."""
        return f"{PATH}{self.id}/"


class Exposed(NamedTuple):
    """What an id leads to."""

    exposure: Exposure
    sandbox: Sandbox


class Exposures:
    """The exposed ports of a node; those of a sandbox end with it."""

    def __init__(self) -> None:
        self._exposed: dict[str, Exposed] = {}

    def add(self, sandbox: Sandbox, port: int, name: str | None = None) -> Exposure:
        """Expose a port.

        Raises:
            TooManyExposures: so many are exposed already.
        """
        if len(self.of(sandbox.id)) >= MOST_OF_ONE_SANDBOX:
            raise TooManyExposures(f"a sandbox has at most {MOST_OF_ONE_SANDBOX} exposed ports", "unexpose one of them")
        exposure = Exposure(secrets.token_hex(16), sandbox.id, port, name, time.time())
        self._exposed[exposure.id] = Exposed(exposure, sandbox)
        sandbox.exposed.add(port)
        sandbox.end.add_done_callback(lambda _: self._exposed.pop(exposure.id, None))
        return exposure

    def remove(self, sandbox_id: str, exposure_id: str) -> Exposure:
        """Let a URL lead nowhere any more.

        Raises:
            KeyError: the sandbox has no such exposure.
        """
        exposure, sandbox = self._exposed[exposure_id]
        if exposure.sandbox_id != sandbox_id:
            raise KeyError(exposure_id)
        del self._exposed[exposure_id]
        if not any(other.port == exposure.port for other in self.of(sandbox_id)):
            sandbox.exposed.discard(exposure.port)
        return exposure

    def of(self, sandbox_id: str) -> list[Exposure]:
        """Return those of a sandbox, the oldest first."""
        return [exposure for exposure, _ in self._exposed.values() if exposure.sandbox_id == sandbox_id]

    def find(self, exposure_id: str) -> Exposed | None:
        """Return what an id leads to."""
        return self._exposed.get(exposure_id)
