"""Sandboxes of bubblewrap, made for real."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import (
    MEBIBYTE,
    Command,
    End,
    EndKind,
    Finished,
    Held,
    Level,
    Limits,
)

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

DELETED = End(EndKind.DELETED, "deleted")


@pytest.fixture(scope="session")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy of the interpreter all tests share."""
    return tmp_path_factory.mktemp("bwrap")


@pytest.fixture
async def backend(runtime_folder: Path) -> AsyncIterator[BwrapBackend]:
    try:
        made = await BwrapBackend.open(runtime_folder)
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")
    yield made
    await made.close()


@pytest.fixture
async def sandbox(backend: BwrapBackend) -> AsyncIterator[Sandbox]:
    confined = await backend.create("one", HOST_IMAGE, Limits(memory_bytes=256 * MEBIBYTE, processes=64))
    made = Sandbox("one", "host", confined, {})
    yield made
    await made.destroy(DELETED)


async def shell(sandbox: Sandbox, text: str) -> Finished:
    return await sandbox.run(Command(["/bin/sh", "-c", text], timeout_s=30))


async def test_a_command_runs_as_root_of_a_system_of_its_own(sandbox: Sandbox) -> None:
    finished = await shell(sandbox, "id -u; hostname; echo $$; ls /proc/1/root 2>&1 | tail -1; cat /etc/hostname")
    uid, hostname, pid, denied, etc = finished.stdout.decode().splitlines()
    assert (uid, hostname, etc) == ("0", "sandbox", "sandbox")
    assert int(pid) < 50
    assert "Permission denied" in denied


async def test_what_it_got_is_reported(sandbox: Sandbox) -> None:
    enforcement = sandbox.enforcement
    if os.geteuid() != 0:
        pytest.skip("control groups and user ids of its own need root")
    assert enforcement.level == Level.CONTAINER
    assert enforcement.held["disk_bytes"] == Held.LOWERED
    assert enforcement.limits.disk_bytes == 128 * MEBIBYTE
    assert enforcement.held["memory_bytes"] == enforcement.held["processes"] == Held.ENFORCED
