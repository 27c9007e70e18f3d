"""One sandbox takes all that it can get: it is stopped at its limits, lives on, and its neighbour feels nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio

from hub_server.sandbox_node.backends.bwrap import BwrapBackend
from hub_server.sandbox_node.errors import FileRefused, Gone
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, EndKind, Finished, Held, Level
from tests.hub_server.sandbox_node.attacks.conftest import SMALL, MakeSandbox, program

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = replace(SMALL, inodes=5000, open_files=512, file_bytes=16 * MEBIBYTE)
MEMORY = LIMITS.memory_bytes // MEBIBYTE
WORKS_WITHIN_S = 10.0  # on a busy machine; alone it is milliseconds


@dataclass
class Neighbour:
    """Another sandbox, which runs a small command again and again, and what it saw."""

    sandbox: Sandbox
    took_s: list[float] = field(default_factory=list)
    failures: list[Finished] = field(default_factory=list)

    async def work(self) -> None:
        while True:
            began = time.perf_counter()
            finished = await self.sandbox.run(Command(["echo", "hello"]))
            self.took_s.append(time.perf_counter() - began)
            if (finished.exit_code, finished.stdout) != (0, b"hello\n"):
                self.failures.append(finished)
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(make_sandbox: MakeSandbox, backend: BwrapBackend) -> Sandbox:
    if backend.level < Level.CONTAINER:
        pytest.skip("control groups cannot be made on this host: nothing holds a sandbox to its limits")
    if backend.level is Level.GVISOR:
        pytest.skip("a sandbox of gVisor ends as a whole: see the test of its own")
    return await make_sandbox(LIMITS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def neighbour(make_sandbox: MakeSandbox) -> AsyncIterator[Neighbour]:
    beside = Neighbour(await make_sandbox())
    task = asyncio.create_task(beside.work())
    yield beside
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest_asyncio.fixture(loop_scope="module")
async def neighbour_unharmed(neighbour: Neighbour) -> AsyncIterator[None]:
    """Check after the attack that the neighbour worked all the time."""
    before = len(neighbour.took_s)
    yield
    while len(neighbour.took_s) < before + 3:
        await asyncio.sleep(0.05)
    assert neighbour.failures == []
    assert statistics.median(neighbour.took_s[before:]) < 1.0
    assert max(neighbour.took_s[before:]) < WORKS_WITHIN_S


@pytest_asyncio.fixture(loop_scope="module")
async def greedy(limited: Sandbox, neighbour_unharmed: None) -> AsyncIterator[Sandbox]:
    """The sandbox that attacks; it works again after each."""
    yield limited
    assert not limited.end.done(), "the sandbox ended"
    await limited.run(Command(["ipcrm", "--all=shm"]))
    assert await works(limited)


async def works(sandbox: Sandbox) -> bool:
    """Return whether the sandbox runs a command, now or as soon as what was killed is gone."""
    deadline = time.monotonic() + WORKS_WITHIN_S
    while time.monotonic() < deadline:
        finished = await sandbox.run(Command(["sh", "-c", "echo works"], timeout_s=WORKS_WITHIN_S))
        if finished.stdout == b"works\n":
            return True
        await asyncio.sleep(0.1)
    return False


async def takes(
    sandbox: Sandbox, what: str, number: int, timeout_s: float = 60
) -> tuple[Finished, list[dict[str, Any]]]:
    """Run one way of taking; return how it ended, and what it said of itself."""
    finished = await program(sandbox, "exhaust", what, str(number), timeout_s=timeout_s)
    return finished, [json.loads(line) for line in finished.stdout.decode().splitlines()]


def was_killed_for_memory(finished: Finished) -> bool:
    return finished.ended.exit_code == 137 and finished.ended.oom_killed and not finished.ended.timed_out


@pytest.mark.parametrize("what", ["processes", "threads"])
async def test_processes_and_threads_stop_at_their_number(greedy: Sandbox, what: str) -> None:
    finished, (said,) = await takes(greedy, what, 2000)
    assert finished.exit_code == 0
    assert LIMITS.processes - 8 <= said["got"] < LIMITS.processes
    assert said["why"] in ("EAGAIN", "can't start new thread")


async def test_a_fork_bomb_is_killed_whole_at_its_timeout(greedy: Sandbox) -> None:
    finished, _ = await takes(greedy, "fork_bomb", 0, timeout_s=1.5)
    assert finished.ended.timed_out
    assert finished.ended.wall_s < WORKS_WITHIN_S
    left = await greedy.run(Command(["sh", "-c", "ps -e -o comm= | grep -c python"]))
    assert int(left.stdout) <= 1, "only the process that snippets are forked of may be there"


@pytest.mark.parametrize("what", ["memory", "shared_memory", "nameless_files", "unix_buffers"])
async def test_memory_ends_where_it_is_said_to_however_it_is_held(greedy: Sandbox, what: str) -> None:
    finished, said = await takes(greedy, what, 3 * MEMORY)
    assert was_killed_for_memory(finished), (finished.ended, said, finished.stderr)
    assert said == []


async def test_memory_of_many_processes_is_counted_together(greedy: Sandbox) -> None:
    finished, said = await takes(greedy, "memory_of_many", 3 * MEMORY)
    # What those had that were killed after they had said so is counted too.
    assert was_killed_for_memory(finished) or said[0]["why"] != "0 were killed"


@pytest.mark.parametrize("what", ["tcp_buffers", "pipes"])
async def test_what_waits_in_connections_and_pipes_is_memory_of_the_sandbox_too(greedy: Sandbox, what: str) -> None:
    before = available_mebibytes()
    task = asyncio.create_task(takes(greedy, what, 4 * MEMORY))
    least = before
    while not task.done():
        least = min(least, available_mebibytes())
        await asyncio.sleep(0.02)
    finished, said = await task
    assert was_killed_for_memory(finished) or said[0]["why"] == "EMFILE" or said[0]["got"] <= MEMORY, said
    assert was_killed_for_memory(finished) or what == "pipes" or said[0]["got"] <= MEMORY
    assert before - least < 2 * MEMORY + 256, "the host lost more than the sandbox may have"


def available_mebibytes() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemAvailable"))


async def test_every_folder_that_can_be_written_is_full_at_the_size_of_the_disk(
    greedy: Sandbox, backend: BwrapBackend
) -> None:
    _, places = await takes(greedy, "disk", 3 * MEMORY)
    assert places, "nothing could be written at all"
    room = greedy.enforcement.limits.disk_bytes // MEBIBYTE
    # Where a file may be as large as the disk, the disk ends it; else the limit of one file.
    for place in places:
        assert place["got"] <= min(room, LIMITS.file_bytes // MEBIBYTE), place
        assert place["why"] in ("ENOSPC", "EFBIG")
    many = (
        "cd /tmp; for i in $(seq 40); do head -c 15M /dev/zero > part$i || break; done; du -sxm . | cut -f1; rm part*"
    )
    finished = await greedy.run(Command(["sh", "-c", many]))
    assert b"No space left" in finished.stderr
    assert int(finished.stdout.split()[-1]) <= room


async def test_files_end_at_their_number_and_one_file_at_its_size(greedy: Sandbox) -> None:
    _, (many,) = await takes(greedy, "inodes", 20_000)
    assert many["why"] == "ENOSPC"
    assert many["got"] < LIMITS.inodes
    _, (large,) = await takes(greedy, "large_file", 100)
    assert large == {"got": LIMITS.file_bytes, "why": "EFBIG"}


async def test_a_full_disk_is_told_to_who_uploads_and_nothing_half_written_is_left(greedy: Sandbox) -> None:
    async def too_much() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield bytes(MEBIBYTE)

    roomy = "no_space" if greedy.enforcement.held["file_bytes"] is Held.NOT else None
    with pytest.raises(FileRefused) as caught:
        await greedy.write_file("/tmp/upload", too_much())
    assert caught.value.reason in ({roomy} if roomy else {"no_space", "too_large", "other"})
    with pytest.raises(FileRefused) as caught:
        await greedy.write_file("/tmp/upload", too_much(), most_bytes=MEBIBYTE)
    assert caught.value.reason == "too_large"
    listed = await greedy.run(Command(["sh", "-c", "ls -A /tmp | grep -v programs"]))
    assert b"upload" not in listed.stdout


async def test_descriptors_and_terminals_end_at_their_number(greedy: Sandbox) -> None:
    _, (opened,) = await takes(greedy, "descriptors", 10_000)
    assert opened["why"] == "EMFILE"
    assert LIMITS.open_files - 16 <= opened["got"] <= LIMITS.open_files
    _, (terminals,) = await takes(greedy, "terminals", 5000)
    assert terminals["got"] <= 1024, "all of the machine's"


async def test_the_processor_is_had_to_its_share_only(greedy: Sandbox) -> None:
    _, (said,) = await takes(greedy, "processor", 2)
    assert 0.05 < said["got"] <= LIMITS.cpu_cores * 1.3


async def test_output_without_end_is_cut_and_its_command_killed(greedy: Sandbox) -> None:
    finished = await greedy.run(Command(["yes"], timeout_s=30), most_output=MEBIBYTE)
    assert finished.ended.cut
    assert not finished.ended.timed_out
    assert len(finished.stdout) <= MEBIBYTE
    session = await greedy.start(Command(["sh", "-c", "yes; yes >&2"]))
    held = own_mebibytes()
    await asyncio.sleep(1.0)
    assert own_mebibytes() - held < 64, "output that nobody reads piles up here"
    await session.signal(9)
    assert (await asyncio.wait_for(session.wait(), WORKS_WITHIN_S)).signal == 9


def own_mebibytes() -> int:
    with open(f"/proc/{os.getpid()}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE


@pytest.mark.parametrize("backend", [pytest.param("oci-runsc", marks=pytest.mark.slow)], indirect=True, scope="module")
@pytest.mark.parametrize(
    "what", ["memory", "memory_of_many", "shared_memory", "tcp_buffers", "processes", "fork_bomb", "disk"]
)
async def test_a_sandbox_of_gvisor_takes_no_more_than_its_limits_or_ends(
    make_sandbox: MakeSandbox, neighbour_unharmed: None, what: str
) -> None:
    sandbox = await make_sandbox(LIMITS)
    held = sandbox.enforcement.limits.memory_bytes // MEBIBYTE
    before = least = available_mebibytes()
    argv = ["python3", "/tmp/programs/exhaust.py", what, "3000"]
    task = asyncio.create_task(sandbox.run(Command(argv, timeout_s=6)))
    while not task.done():
        least = min(least, available_mebibytes())
        await asyncio.sleep(0.02)
    assert before - least < 2 * held + 256, "the host lost more than the sandbox may have"
    try:
        finished = task.result()
    except Gone:
        kind = sandbox.end.result().kind
        assert kind is EndKind.OOM_KILLED or what in ("processes", "fork_bomb")
    else:
        assert finished.ended.exit_code == 137 or finished.ended.timed_out or b'"why": "E' in finished.stdout, finished
