"""The launcher: what is left when it, its node or a part of a sandbox is killed, and what it removes of another's."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.launcher.uids import RANGE, IdRanges
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, EndKind, Limits

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

DELETED = End(EndKind.DELETED, "deleted")
LIMITS = Limits(memory_bytes=128 * MEBIBYTE, processes=64)
# A background job that has left its session, ignores what can be ignored, and is found by its arguments.
STUBBORN = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; exec sleep {mark}' >/dev/null 2>&1 &); sleep 0.2"


@pytest.fixture(scope="session")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy of the interpreter all tests share."""
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture
async def backend(runtime_folder: Path) -> AsyncIterator[BwrapBackend]:
    try:
        made = await BwrapBackend.open(runtime_folder)
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")
    yield made
    await made.close()


@pytest.fixture
def mark() -> str:
    """A number of seconds to sleep that no other test of this host uses."""
    return f"{100_000 + os.getpid()}.{time.monotonic_ns() % 1_000_000}"


async def occupied(backend: BwrapBackend, name: str, mark: str) -> Sandbox:
    """Return a sandbox in which a stubborn job runs."""
    made = Sandbox(name, "host", await backend.create(name, HOST_IMAGE, LIMITS), {})
    await made.run(Command(["/bin/sh", "-c", STUBBORN.format(mark=mark)], timeout_s=30))
    await until(lambda: sleeping(mark) != [])
    return made


def sleeping(mark: str) -> list[int]:
    """Return the host's ids of the processes that sleep for so long."""
    return [pid for pid, words in commands().items() if words == ["sleep", mark]]


def commands() -> dict[int, list[str]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            except OSError:
                continue
    return found


def parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def outer_and_agent(backend: BwrapBackend) -> tuple[int, int]:
    """Return the host's ids of bubblewrap's outer process and of the agent, of the only sandbox there is."""
    above = parents()
    outer = next(pid for pid, parent in above.items() if parent == backend._client.ready.pid)
    return outer, next(pid for pid, parent in above.items() if parent == outer)


def groups_of(backend: BwrapBackend) -> list[Path]:
    """Return the control groups that are there for sandboxes of a backend."""
    return [group for home in backend._client.ready.homes.values() for group in Path(home).glob("*/")]


async def until(holds: Callable[[], bool], within_s: float = 20) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)


async def test_a_destroyed_sandbox_leaves_no_process_and_no_group(backend: BwrapBackend, mark: str) -> None:
    sandbox = await occupied(backend, "one", mark)
    assert backend._client.ready.groups is None or groups_of(backend) != []
    await sandbox.destroy(DELETED)
    assert sleeping(mark) == []
    assert groups_of(backend) == []
    await sandbox.destroy(DELETED)


@pytest.mark.parametrize("part", ["outer", "agent"])
async def test_when_a_part_of_a_sandbox_is_killed_the_rest_goes_too(
    backend: BwrapBackend, mark: str, part: str
) -> None:
    sandbox = await occupied(backend, "one", mark)
    outer, agent = outer_and_agent(backend)
    os.kill(outer if part == "outer" else agent, signal.SIGKILL)
    end = await asyncio.wait_for(sandbox.end, 10)
    assert end.kind == EndKind.FAILED
    await until(lambda: not sleeping(mark) and not groups_of(backend))
    again = await backend.create("one", HOST_IMAGE, LIMITS)
    await again.destroy()


async def test_when_the_launcher_is_killed_all_goes_and_the_next_sandbox_gets_another(
    backend: BwrapBackend, mark: str
) -> None:
    sandbox = await occupied(backend, "one", mark)
    left = [Path(home) for home in backend._client.ready.homes.values()]
    os.kill(backend._client.ready.pid, signal.SIGKILL)
    assert (await asyncio.wait_for(sandbox.end, 10)).kind == EndKind.FAILED
    await until(lambda: not sleeping(mark))
    again = await backend.create("two", HOST_IMAGE, LIMITS)
    assert not any(home.exists() for home in left), "what the dead one left is removed by the next"
    await again.destroy()


async def test_when_the_node_is_killed_nothing_is_left(runtime_folder: Path, mark: str) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.hub_server.sandbox_node.test_launcher import BwrapBackend, occupied\n"
        "async def main():\n"
        "    backend = await BwrapBackend.open(pathlib.Path(sys.argv[1]))\n"
        "    await asyncio.gather(*(occupied(backend, name, sys.argv[2]) for name in ('one', 'two', 'three')))\n"
        "    print(backend._client.ready.pid, *backend._client.ready.homes.values(), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    node = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [sys.executable, "-c", program, str(runtime_folder), mark], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parent.parent.parent.parent,
    )  # fmt: skip
    assert node.stdout is not None
    said = (await asyncio.to_thread(node.stdout.readline)).split()
    if not said:
        pytest.skip("bubblewrap makes no sandbox on this host")
    assert len(sleeping(mark)) == 3
    node.kill()
    node.wait()
    node.stdout.close()
    await until(lambda: not sleeping(mark) and not Path("/proc", said[0]).exists())
    assert not any(Path(home).exists() for home in said[1:])


async def test_a_launcher_leaves_alone_what_belongs_to_another_that_lives(
    backend: BwrapBackend, runtime_folder: Path
) -> None:
    sandbox = Sandbox("one", "host", await backend.create("one", HOST_IMAGE, LIMITS), {})
    other = await BwrapBackend.open(runtime_folder)
    same_name = Sandbox("one", "host", await other.create("one", HOST_IMAGE, LIMITS), {})
    await same_name.destroy(DELETED)
    await other.close()
    assert (await sandbox.run(Command(["echo", "here"]))).stdout == b"here\n"
    await sandbox.destroy(DELETED)


async def test_many_that_are_made_and_killed_at_once_leave_nothing(backend: BwrapBackend) -> None:
    async def brief(number: int) -> None:
        making = asyncio.create_task(backend.create(f"brief-{number}", HOST_IMAGE, LIMITS))
        await asyncio.sleep(0.004 * number)
        making.cancel()
        await asyncio.wait([making])
        if not making.cancelled() and making.exception() is None:
            await making.result().destroy()

    descriptors = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(brief(number) for number in range(24)))
    await until(lambda: backend._client.ready.pid not in parents().values() and not groups_of(backend))
    await until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    last = await backend.create("last", HOST_IMAGE, LIMITS)
    await last.destroy()


async def test_the_host_sees_no_mount_of_a_sandbox(backend: BwrapBackend) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    confined = await backend.create("one", HOST_IMAGE, LIMITS)
    assert Path("/proc/self/mountinfo").read_text() == before
    await confined.destroy()


def test_ranges_of_user_ids_go_round_and_are_never_had_twice(tmp_path: Path) -> None:
    one, two = (IdRanges(tmp_path / "ids", 1_000_000, 4) for _ in range(2))
    # Locks are a process's own, so what another holds is taken by another.
    taken = [one.take() for _ in range(4)]
    assert sorted(each.first for each in taken) == [1_000_000 + number * RANGE for number in range(4)]
    with pytest.raises(OSError, match="all 4 ranges"):
        one.take()
    one.give_back(taken[1])
    assert one.take() == taken[1]
    child = os.fork()
    if child == 0:
        try:
            two.take()
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
