"""Says what sandboxes this host can give, and how to get better ones."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE
from hub_server.sandbox_node.choosing import BackendChoice, candidates, opener
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.probes import Finding, State, every_probe
from hub_server.sandbox_node.specification import Level, Limits

__all__ = ["Examination", "Finding", "Offer", "State", "examine"]

_TIMED_CREATIONS = 3


@dataclass(frozen=True)
class Offer:
    """What one backend gives on this host. `level` is None where it gives nothing, and `detail` says why."""

    backend: str
    level: Level | None
    detail: str
    fix: str | None = None
    create_ms: float | None = None  # until the agent of a new sandbox answers; the median of a few


@dataclass(frozen=True)
class Examination:
    """All that was found."""

    findings: Sequence[Finding]
    offers: Sequence[Offer]

    @property
    def best(self) -> Offer | None:
        """The offer that a node takes by default: the soonest of level container or more, else the strongest."""
        usable = [offer for offer in self.offers if offer.level is not None]
        contained = [offer for offer in usable if offer.level is not None and offer.level >= Level.CONTAINER]
        return contained[0] if contained else max(usable, key=lambda offer: offer.level or Level.NONE, default=None)


def examine() -> Examination:
    """Look at this host; each offer was found by really making sandboxes.

    It takes some seconds, and leaves nothing behind.
    """
    with tempfile.TemporaryDirectory(prefix="prime-sandbox-doctor-") as name:
        folder = Path(name)
        findings = every_probe(folder)
        offers = [asyncio.run(_offer(choice, folder)) for choice in candidates(BackendChoice.AUTO)]
    return Examination(findings, offers)


async def _offer(choice: BackendChoice, folder: Path) -> Offer:
    try:
        backend = await opener(choice)(folder)
    except SandboxError as error:
        return Offer(choice.value, None, error.detail, error.hint)
    try:
        taken_ms = []
        for number in range(_TIMED_CREATIONS):
            started = time.perf_counter()
            confined = await backend.create(f"doctor-{number}", HOST_IMAGE, Limits())
            taken_ms.append((time.perf_counter() - started) * 1000)
            notes = "; ".join(confined.enforcement.notes)
            await confined.destroy()
        return Offer(choice.value, backend.level, notes or "works", None, statistics.median(taken_ms))
    except SandboxError as error:
        return Offer(choice.value, None, error.detail, error.hint)
    finally:
        await backend.close()
