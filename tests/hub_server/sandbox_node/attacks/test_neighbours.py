"""Two sandboxes on one host have no channel between them, and none to the host, though they want one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import pytest_asyncio

from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Session
from hub_server.sandbox_node.specification import Command, Level
from tests.hub_server.sandbox_node.attacks.backends_here import PROGRAMS
from tests.hub_server.sandbox_node.attacks.conftest import MakeSandbox, program, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Files that all sandboxes and the host show: programs, a device.
SHARED = ["/usr/bin/env", "/dev/null"]
# In the sandbox that put them there, these are seen; so the search for them is a search.
ALWAYS_SEEN_AT_HOME = {
    "a segment of shared memory", "a semaphore", "a message queue", "a POSIX message queue", "an abstract socket",
    "a port", "a lock on a file of the image", "a record lock on a file of the image", "its processes",
    "a file in /dev/shm", "a file in /tmp",
}  # fmt: skip


# What gVisor's kernel does not have at all, so that it is no channel either.
UNKNOWN_TO_GVISOR = {
    "a POSIX message queue", "a message queue", "a record lock on a file of the image", "a lock on a file of the image",
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(make_sandbox: MakeSandbox) -> tuple[Sandbox, Sandbox]:
    return await make_sandbox(), await make_sandbox()


async def held(sandbox: Sandbox, name: str, shared: str) -> Session:
    """Leave the marks of a name in a sandbox; they are held until the command's input ends."""
    argv = ["python3", "/tmp/programs/neighbour.py", "put", name, shared]
    session, follower = await sandbox.start_followed(Command(argv, stdin=True, timeout_s=100))
    assert await says(follower, b"ready"), "the marks could not be put"
    return session


async def looked(sandbox: Sandbox, name: str, shared: str) -> dict[str, bool]:
    """Return what is seen of a name's marks."""
    finished = await program(sandbox, "neighbour", "look", name, shared)
    assert finished.exit_code == 0, finished.stderr.decode()
    seen: dict[str, bool] = json.loads(finished.stdout)
    return seen


def looked_on_host(name: str, shared: str) -> dict[str, bool]:
    argv = [sys.executable, str(PROGRAMS / "neighbour.py"), "look", name, shared]
    seen: dict[str, bool] = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)
    return seen


@pytest.mark.parametrize("shared", SHARED)
async def test_what_one_sandbox_leaves_no_other_sees_and_the_host_neither(
    pair: tuple[Sandbox, Sandbox], shared: str
) -> None:
    name = f"prime-mark-{os.getpid()}-{os.path.basename(shared)}"
    one, other = pair
    session = await held(one, name, shared)
    try:
        at_home = await looked(one, name, shared)
        is_gvisor = one.enforcement.level is Level.GVISOR
        expected = ALWAYS_SEEN_AT_HOME - (UNKNOWN_TO_GVISOR if is_gvisor else set())
        assert {channel for channel, is_seen in at_home.items() if is_seen} >= expected
        assert [channel for channel, is_seen in (await looked(other, name, shared)).items() if is_seen] == []
        on_host = {channel for channel, is_seen in looked_on_host(name, shared).items() if is_seen}
        assert on_host <= {"its processes", "its lock in /proc/locks"}  # the host's own view of what runs on it
    finally:
        await session.signal(signal.SIGKILL)


async def test_what_the_host_leaves_no_sandbox_sees(pair: tuple[Sandbox, Sandbox]) -> None:
    name = f"prime-host-mark-{os.getpid()}"
    argv = [sys.executable, str(PROGRAMS / "neighbour.py"), "put", name, "/usr/bin/env"]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220  it is not waited for
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        on_host = looked_on_host(name, "/usr/bin/env")
        assert on_host["a lock on a file of the image"]
        assert on_host["a segment of shared memory"]
        seen = await looked(pair[0], name, "/usr/bin/env")
        assert [channel for channel, is_seen in seen.items() if is_seen] == []
    finally:
        holder.communicate(timeout=20)
        for folder in ("/dev/shm", "/tmp", "/var/tmp", "/root", "/run"):
            if os.path.exists(f"{folder}/{name}"):
                os.unlink(f"{folder}/{name}")


@pytest.mark.parametrize("shared", SHARED)
async def test_nobody_learns_what_another_opens(pair: tuple[Sandbox, Sandbox], shared: str) -> None:
    one, other = pair
    answers = []
    for opens_itself in (False, True):
        argv = ["python3", "/tmp/programs/neighbour.py", "watch", "-", shared]
        session, follower = await one.start_followed(Command(argv, stdin=True, timeout_s=60))
        assert await says(follower, b"watching")
        os.close(os.open(shared, os.O_RDONLY))  # on the host
        await other.run(Command(["cat", shared]))
        if opens_itself:
            await one.run(Command(["cat", shared]))
        await session.close_input()
        answers.append(await says(follower, b'{"opened": true}'))
    # gVisor tells a sandbox nothing of its own files either.
    assert answers == [False, one.enforcement.level is not Level.GVISOR]


KILL_ALL_NUMBERS = """
import os
tried = 0
for pid in range(2, 70000):
    if pid != os.getpid():
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            tried += 1
print(tried)
"""


async def test_processes_of_another_cannot_be_reached_by_any_number(pair: tuple[Sandbox, Sandbox]) -> None:
    one, other = pair
    session = await other.start(Command(["sleep", "60"]))
    killer = await one.run(Command(["python3", "-c", KILL_ALL_NUMBERS], timeout_s=60))
    assert int(killer.stdout) > 69_900
    assert session.ended is None
    assert await other.is_alive()
    assert await one.is_alive()
    await session.signal(signal.SIGKILL)
