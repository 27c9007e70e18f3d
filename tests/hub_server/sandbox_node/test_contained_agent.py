"""What the agent does in a contained sandbox: with its own copy of the interpreter, as process 1, in control groups."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
from hub_server.sandbox_node.batches import Batch, run_batch
from hub_server.sandbox_node.connections import Stream
from hub_server.sandbox_node.errors import NotPossible, NotStarted
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, EndKind, Level, Limits

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    try:
        backend = await BwrapBackend.open(tmp_path)
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")
    confined = await backend.create("one", HOST_IMAGE, Limits(memory_bytes=256 * MEBIBYTE, processes=48))
    made = Sandbox("one", "host", confined, {})
    yield made
    await made.destroy(End(EndKind.DELETED, "deleted"))
    await backend.close()


async def test_each_part_of_the_agent_is_there(sandbox: Sandbox) -> None:
    """What it imports only when asked must be in its copy of the library too."""
    assert (await sandbox.run_python("import sys; print(sys.prefix)")).stdout == b"/usr\n", "the image's own Python"
    assert (await sandbox.run(Command(["id", "-un"], user="daemon"))).stdout == b"daemon\n"

    async def answer(stream: Stream) -> None:
        await stream.write(b"heard " + await stream.read())
        await stream.close_writing()

    await sandbox.offer_proxy(3128, answer)
    ask = "import socket\nc = socket.create_connection(('127.0.0.1', 3128))\nc.sendall(b'this')\nprint(c.recv(100))"
    assert (await sandbox.run_python(ask)).stdout == b"b'heard this'\n"
    serve = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept()\nc.sendall(c.recv(100).upper())"
    )
    _, follower = await sandbox.start_followed(Command(["python3", "-c", serve]))
    with follower:
        said = await follower.next()
        assert isinstance(said, Output), said
        stream = await sandbox.connect(int(said.data))
        await stream.write(b"quiet")
        assert await stream.read() == b"QUIET"
        stream.close()
    written = await run_batch(sandbox, Batch([b"1", b"2"], code="print(int(input()) * 2)"))
    assert [each.stdout for each in written] == [b"2\n", b"4\n"]


async def test_a_command_that_had_no_memory_left_is_marked_and_the_next_one_runs(sandbox: Sandbox) -> None:
    if sandbox.enforcement.level < Level.CONTAINER:
        pytest.skip("control groups of memory are not to be had here")
    greedy = await sandbox.run(Command(["python3", "-c", "x = bytearray(600 << 20)"], timeout_s=30))
    assert greedy.exit_code == 128 + signal.SIGKILL
    assert greedy.ended.oom_killed
    modest = await sandbox.run(Command(["python3", "-c", "x = bytearray(60 << 20)"], timeout_s=30))
    assert (modest.exit_code, modest.ended.oom_killed) == (0, False)


async def test_a_fork_bomb_ends_at_its_timeout_and_leaves_no_process(sandbox: Sandbox) -> None:
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    finished = await asyncio.wait_for(sandbox.run(Command(["python3", "-c", bomb], timeout_s=1)), 60)
    assert finished.ended.timed_out
    left = await sandbox.run(Command(["/bin/sh", "-c", "ls -d /proc/[0-9]* | wc -l"], timeout_s=30))
    assert int(left.stdout) <= 6, "the agent, the shell, what it runs, a zygote and a spare are all that may be there"


async def test_what_no_process_is_left_for_is_refused_and_the_sandbox_stays(sandbox: Sandbox) -> None:
    if sandbox.enforcement.level < Level.CONTAINER:
        pytest.skip("control groups of processes are not to be had here")
    hold = "import subprocess, time\nfor _ in range(100):\n    try:\n        subprocess.Popen(['sleep', '60'])\n"
    hold += "    except OSError:\n        break\nprint('full', flush=True)\ntime.sleep(60)"
    session, follower = await sandbox.start_followed(Command(["python3", "-c", hold]))
    with follower:
        assert await follower.next() == Output("stdout", b"full\n")
        try:
            said = (await sandbox.run(Command(["/bin/sh", "-c", "/bin/true"], timeout_s=20))).stderr.decode()
        except NotStarted as refused:
            said = refused.detail
        assert "fork" in said or "process" in said
        await session.signal(signal.SIGKILL)
        await session.wait()
    assert (await sandbox.run(Command(["/bin/true"], timeout_s=20))).exit_code == 0
