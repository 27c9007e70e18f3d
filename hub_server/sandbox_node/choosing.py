"""Which backend a node uses on this host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path

from hub_server.errors import NotServing
from hub_server.sandbox_node.backends import Backend
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.specification import Level

Opener = Callable[[Path], Awaitable[Backend]]


class BackendChoice(StrEnum):
    """What an operator may ask for."""

    AUTO = "auto"
    BWRAP = "bwrap"
    OCI = "oci"  # the first of those below that gives the level
    CRUN = "crun"
    RUNC = "runc"
    RUNSC = "runsc"
    PROCESS = "process"


async def open_backend(choice: BackendChoice, min_level: Level, folder: Path) -> Backend:
    """Return the first backend that gives `min_level` here, of all or of those that the choice names.

    Raises:
        NotServing: none does; says for each why.
    """
    reasons = []
    for name in candidates(choice):
        try:
            backend = await opener(name)(folder)
        except SandboxError as error:
            reasons.append(f"{name.value}: {error.detail}")
            continue
        if backend.level >= min_level:
            return backend
        await backend.close()
        reasons.append(f"{name.value} gives level {backend.level.value} only")
    raise NotServing(
        f"this host cannot give sandboxes of level {min_level.value}: {'; '.join(reasons)}",
        hint="`prime sandbox doctor` says what lacks and how to get it; a lower --min-level does with less",
    )


def candidates(choice: BackendChoice) -> list[BackendChoice]:
    """Return the backends that a choice means; what starts a sandbox soonest comes first."""
    runtimes = [BackendChoice.CRUN, BackendChoice.RUNC, BackendChoice.RUNSC]
    if choice is BackendChoice.AUTO:
        return [BackendChoice.BWRAP, *runtimes, BackendChoice.PROCESS]
    return runtimes if choice is BackendChoice.OCI else [choice]


def opener(name: BackendChoice) -> Opener:
    """Return what starts one backend; only that one's modules are imported."""
    if name is BackendChoice.BWRAP:
        return _open_bwrap
    return _open_process if name is BackendChoice.PROCESS else _oci_opener(name.value)


async def _open_bwrap(folder: Path) -> Backend:
    from hub_server.sandbox_node.backends.bwrap import BwrapBackend

    return await BwrapBackend.open(folder)


def _oci_opener(runtime: str) -> Opener:
    async def open_oci(folder: Path) -> Backend:
        from hub_server.sandbox_node.backends.oci import OciBackend, runtime_of

        return await OciBackend.open_with(folder, runtime_of(runtime))

    return open_oci


async def _open_process(folder: Path) -> Backend:
    from hub_server.sandbox_node.backends.process import ProcessBackend

    return ProcessBackend(folder)
