"""Which backend a node uses on this host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path

from hub_server.errors import NotServing
from hub_server.sandbox_node.backends import Backend
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.specification import Level


class BackendChoice(StrEnum):
    """What an operator may ask for."""

    AUTO = "auto"
    BWRAP = "bwrap"
    OCI = "oci"
    PROCESS = "process"


async def open_backend(choice: BackendChoice, min_level: Level, folder: Path) -> Backend:
    """Return the first backend that gives `min_level` here, of all or of the one that was chosen.

    Raises:
        NotServing: none does; says for each why.
    """
    names = [name for name in _OPENERS if choice in (name, BackendChoice.AUTO)]
    reasons = []
    for name in names:
        try:
            backend = await _OPENERS[name](folder)
        except SandboxError as error:
            reasons.append(f"{name}: {error.detail}")
            continue
        if backend.level >= min_level:
            return backend
        await backend.close()
        reasons.append(f"{name} gives level {backend.level.value} only")
    raise NotServing(
        f"this host cannot give sandboxes of level {min_level.value}: {'; '.join(reasons)}",
        hint="`prime sandbox doctor` says what lacks and how to get it; a lower --min-level does with less",
    )


async def _open_bwrap(folder: Path) -> Backend:
    from hub_server.sandbox_node.backends.bwrap import BwrapBackend

    return await BwrapBackend.open(folder)


async def _open_oci(folder: Path) -> Backend:
    from hub_server.sandbox_node.backends.oci import OciBackend, best_of, find_runtimes

    return await OciBackend.open_with(folder, best_of(find_runtimes()))


async def _open_process(folder: Path) -> Backend:
    from hub_server.sandbox_node.backends.process import ProcessBackend

    return ProcessBackend(folder)


# The best that starts quickly comes first.
_OPENERS: dict[BackendChoice, Callable[[Path], Awaitable[Backend]]] = {
    BackendChoice.BWRAP: _open_bwrap,
    BackendChoice.OCI: _open_oci,
    BackendChoice.PROCESS: _open_process,
}
