"""What can make a sandbox: one interface, and the backends behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hub_server.sandbox_node.link import AgentLink
from hub_server.sandbox_node.specification import End, Enforcement, Level, Limits


@dataclass(frozen=True)
class RootFilesystem:
    """An image as a backend needs it: `path` is its root; None is the host's own system, read-only."""

    name: str  # name:tag
    path: Path | None
    environment: Mapping[str, str]  # of the image's configuration
    working_dir: str = "/"


class Confined(Protocol):
    """A sandbox as its backend sees it: processes and their agent, before anybody has used it."""

    link: AgentLink
    enforcement: Enforcement

    async def destroy(self) -> None:
        """End all processes and remove every trace; it may be called twice."""

    async def why_ended(self) -> End | None:
        """Return why the sandbox ended, as far as the host knows (memory events); None where it knows nothing."""

    def memory_bytes(self) -> int | None:
        """Return what the sandbox holds now; None where the host does not count."""

    def oom_kills(self) -> int | None:
        """Return how many processes of it were killed for want of memory; None where the host does not count."""


class Backend(Protocol):
    """Makes sandboxes on this host."""

    name: str
    level: Level  # of what it makes, on this host

    async def create(self, sandbox_id: str, image: RootFilesystem, limits: Limits) -> Confined:
        """Make one; its agent answers when this returns.

        Raises:
            NotStarted: it could not be made; nothing of it is left.
        """

    async def close(self) -> None:
        """Destroy all that it made, and end its helper processes."""
