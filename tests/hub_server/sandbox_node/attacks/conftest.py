"""Sandboxes to attack, of every backend that this host can run. A backend is opened once for each file of tests."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hub_server.sandbox_node.backends import Backend, RootFilesystem
from hub_server.sandbox_node.backends.bwrap import BwrapBackend
from hub_server.sandbox_node.backends.oci import OciBackend, runtime_of
from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, EndKind, Finished, Level, Limits
from tests.hub_server.sandbox_node.attacks.backends_here import PROGRAMS

HOST = RootFilesystem("host:latest", None, {})
SMALL = Limits(cpu_cores=0.5, memory_bytes=256 * MEBIBYTE, disk_bytes=64 * MEBIBYTE, inodes=20_000, processes=64)

MakeSandbox = Callable[..., Awaitable[Sandbox]]
Run = Callable[..., Awaitable[Finished]]


@pytest.fixture(scope="session")
def backend_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backends")


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["bwrap", *(pytest.param(f"oci-{kind}", marks=pytest.mark.slow) for kind in ("crun", "runc", "runsc"))],
)
async def backend(request: pytest.FixtureRequest, backend_folder: Path) -> AsyncIterator[BwrapBackend]:
    program = request.param.removeprefix("oci-")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    try:
        if program == "bwrap":
            made = await BwrapBackend.open(backend_folder)
        else:
            made = await OciBackend.open_with(backend_folder, runtime_of(program))
    except NotPossible as problem:
        pytest.skip(f"{program} makes no sandbox on this host: {problem}")
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def make_sandbox(backend: Backend) -> AsyncIterator[MakeSandbox]:
    """Make sandboxes that are destroyed after the file of tests, with the programs of the attacks inside."""
    made: list[Sandbox] = []
    numbers = itertools.count()

    async def make(limits: Limits = SMALL, *, programs: bool = True) -> Sandbox:
        if backend.level is Level.GVISOR:  # which runs inside the limits of its sandbox itself
            limits = replace(limits, cpu_cores=2.0, memory_bytes=limits.memory_bytes + 256 * MEBIBYTE)
        name = f"attacked-{next(numbers)}"
        sandbox = Sandbox(name, HOST.name, await backend.create(name, HOST, limits), {})
        made.append(sandbox)
        if programs:
            for path in PROGRAMS.glob("*.py"):
                await write(sandbox, f"/tmp/programs/{path.name}", path.read_bytes())
        return sandbox

    yield make
    for sandbox in made:
        await sandbox.destroy(End(EndKind.DELETED, "the test is over"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox(make_sandbox: MakeSandbox) -> Sandbox:
    return await make_sandbox()


async def says(follower: Any, words: bytes, within_s: float = 30) -> bool:
    """Return whether the command that is followed writes these words before it ends; what it wrote earlier is gone."""
    heard = b""
    async with asyncio.timeout(within_s):
        async for event in follower:
            if isinstance(event, Output):
                heard += event.data
                if words in heard:
                    return True
    return False


async def write(sandbox: Sandbox, path: str, content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    await sandbox.write_file(path, chunks())


async def program(
    sandbox: Sandbox, name: str, *arguments: str, env: dict[str, str] | None = None, timeout_s: float = 60
) -> Finished:
    """Run one of the programs inside."""
    argv = ["python3", f"/tmp/programs/{name}.py", *arguments]
    return await sandbox.run(Command(argv, env=env or {}, timeout_s=timeout_s))
