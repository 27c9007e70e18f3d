"""What a command leaves behind: processes that want to outlive it, and things it puts in the way of later commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from pathlib import Path

import pytest

from hub_server.sandbox_node.errors import Gone, NotPossible
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
from hub_server.sandbox_node.specification import Command, End, EndKind, Finished, Level
from tests.hub_server.sandbox_node.attacks.conftest import MakeSandbox, says, write

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Leaves by all doors: a new session and process group, two forks, closed descriptors, ignored signals.
DAEMON = """
import os, signal, sys
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork(): {then}
os.setsid()
if os.fork(): os._exit(0)
os.setpgid(0, 0)
if {closed}:
    for fd in (0, 1, 2): os.close(fd)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""


def marker() -> str:
    """Return a time to sleep that nobody else sleeps, to know the process by."""
    return f"5432{secrets.randbelow(10**6):06}.{secrets.randbelow(10**6)}"


def on_host(words: str) -> list[int]:
    """Return the processes of this host with these words in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if words.encode() in folder.joinpath("cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


async def gone_from_host(words: str, within_s: float = 5) -> bool:
    deadline = time.monotonic() + within_s
    while on_host(words) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return not on_host(words)


async def python(sandbox: Sandbox, code: str, *arguments: str, timeout_s: float = 30) -> Finished:
    return await sandbox.run(Command(["python3", "-c", code, *arguments], timeout_s=timeout_s))


async def test_a_daemon_is_killed_with_the_command_that_ran_out_of_time(sandbox: Sandbox, backend: object) -> None:
    words = marker()
    finished = await python(sandbox, DAEMON.format(then="signal.pause()", closed=True), words, timeout_s=1.0)
    assert finished.ended.timed_out
    assert await gone_from_host(words)
    assert await sandbox.is_alive()


BESIDE_ITS_PARENT = """
import ctypes, os, platform, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
child = libc.syscall(number, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)  # CLONE_PARENT
if child == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", sys.argv[1]])
print(child, flush=True)
signal.pause()
"""


async def test_a_command_makes_no_process_beside_itself(sandbox: Sandbox) -> None:
    words = marker()
    finished = await python(sandbox, BESIDE_ITS_PARENT, words, timeout_s=1.0)
    assert finished.ended.timed_out
    assert sandbox.enforcement.level is Level.GVISOR or finished.stdout == b"-1\n"
    assert await gone_from_host(words)


async def test_a_daemon_that_keeps_the_output_open_holds_up_nobody(sandbox: Sandbox) -> None:
    words = marker()
    began = time.perf_counter()
    finished = await python(sandbox, DAEMON.format(then="os._exit(7)", closed=False), words)
    assert finished.exit_code == 7
    assert time.perf_counter() - began < 5
    await sandbox.run(Command(["pkill", "-9", "sleep"]))


async def test_nothing_outlives_its_sandbox(make_sandbox: MakeSandbox) -> None:
    sandbox = await make_sandbox(programs=False)
    words = marker()
    assert (await python(sandbox, DAEMON.format(then="os._exit(0)", closed=True), words)).exit_code == 0
    stop = f"sleep {words} & kill -STOP $!; kill -STOP $$"
    session = await sandbox.start(Command(["sh", "-c", stop]))
    async with asyncio.timeout(10):
        while len((await sandbox.run(Command(["pgrep", "-f", words]))).stdout.split()) < 3:
            await asyncio.sleep(0.05)  # the daemon, the shell, and what the shell started
    if sandbox.enforcement.level is not Level.GVISOR:
        assert len(on_host(words)) == 3
    await sandbox.destroy(End(EndKind.DELETED, "deleted"))
    assert await gone_from_host(words)
    with pytest.raises(Gone):
        await sandbox.run(Command(["true"]))
    assert session.ended is not None


async def test_killing_everything_again_and_again_leaves_a_sandbox_that_works(sandbox: Sandbox) -> None:
    if sandbox.enforcement.level is Level.GVISOR:
        pytest.skip("gVisor lets process 1 be killed, which ends the sandbox")
    for _ in range(5):
        await sandbox.run(Command(["sh", "-c", "kill -9 -1; kill -STOP -1"]))
    await asyncio.sleep(0.2)
    assert (await sandbox.run(Command(["echo", "here"]))).stdout == b"here\n"
    assert (await sandbox.run_python("print('here')", timeout_s=20)).stdout == b"here\n"


SCAN_OWN_MEMORY = """
import gc, sys
needle = "".join(reversed({reversed!r})).encode()
hits = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in list(maps):
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("rw") and high - low < 1 << 28:
            memory.seek(low)
            try: data = memory.read(high - low)
            except OSError: continue
            hits += data.count(needle) - data.count(b"x" + needle) if data else 0
            del data
frame, locals_seen = sys._getframe(), []
while frame is not None:
    locals_seen.append(repr(list(frame.f_locals.values()))); frame = frame.f_back
hits += sum(text.count(needle.decode()) for text in locals_seen if {own!r} not in text)
print("hits", hits)
"""


async def test_a_snippet_finds_nothing_of_an_earlier_one_in_its_memory(sandbox: Sandbox) -> None:
    word = f"hidden-test-{secrets.token_hex(8)}"
    keeper = f"answer = 'x{word}'.lower()\nimport sys; sys.modules['left'] = answer\nprint(len(answer))"
    assert (await sandbox.run_python(keeper, stdin=word.encode(), env={"HIDDEN": word}, timeout_s=20)).exit_code == 0
    scan = SCAN_OWN_MEMORY.format(reversed=word[::-1], own="needle")
    found = await sandbox.run_python(scan + "\nprint('left' in sys.modules)", timeout_s=20)
    assert found.exit_code == 0, found.stderr.decode()
    own = await sandbox.run_python(f"import sys\nheld = bytes('{word}', 'ascii') * 3\n" + scan, timeout_s=20)
    hits, own_hits = (int(said.stdout.split()[1]) for said in (found, own))
    # The needle itself, put together by the scan, is in its memory a few times.
    assert own_hits > hits, "the scan does not see what is there"
    assert found.stdout.split()[2] == b"False"
    again = await sandbox.run_python(SCAN_OWN_MEMORY.format(reversed=secrets.token_hex(14), own="needle"), timeout_s=20)
    assert hits <= int(again.stdout.split()[1]), "more than one finds of a word that never was here"


HOLD_MEMORY_OF_ALL = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), print("held", *sorted(held), flush=True), os._exit(0))).start()
held = {}
print("watching", flush=True)
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid(), *held):
            try: held[int(name)] = os.open(f"/proc/{name}/mem", os.O_RDWR)
            except OSError: pass
"""


async def test_nobody_holds_the_memory_of_the_helper_that_snippets_come_from(sandbox: Sandbox) -> None:
    """A process is readable from its start until it says otherwise, and memory that was opened in time stays open."""
    if sandbox.enforcement.level < Level.CONTAINER:
        pytest.skip("only one group is mapped on this host: the helper has an unprotected moment")
    if sandbox.enforcement.level is Level.GVISOR:
        pytest.skip("gVisor hides no process of a sandbox from the others of it")
    await sandbox.run(Command(["sh", "-c", "kill -9 -1"]))  # the next snippet needs a new helper
    await asyncio.sleep(0.2)
    watcher = Command(["python3", "-c", HOLD_MEMORY_OF_ALL], stdin=True, timeout_s=60)
    session, follower = await sandbox.start_followed(watcher)
    assert await says(follower, b"watching")
    code = "import os, time\nprint(os.getppid(), os.getpid())\ntime.sleep(0.5)"
    said = await sandbox.run_python(code, timeout_s=20)
    helper, snippet = map(int, said.stdout.split())
    await asyncio.sleep(0.5)
    await session.close_input()
    output = b"".join([event.data async for event in follower if isinstance(event, Output)])
    held = [int(number) for number in output.split()[1:]]
    assert snippet in held, "the watcher does not see what can be seen"
    assert helper not in held
    # Nor of what was forked meanwhile and waits, which is what the next snippet and the next command become.
    waited = await sandbox.run_python("import os\nprint(os.getpid())", timeout_s=20)
    assert int(waited.stdout) not in held
    waited_too = await sandbox.run(Command(["sh", "-c", "echo $$"]))
    assert int(waited_too.stdout) not in held


async def test_what_a_command_plants_is_not_run_by_the_agent_or_its_helper(sandbox: Sandbox) -> None:
    evil = b"import os\nos.makedirs('/tmp/ran', exist_ok=True)\nopen('/tmp/ran/%d' % os.getpid(), 'w').close()\n"
    names = (
        "json",
        "os",
        "encodings",
        "socket",
        "signal",
        "select",
        "struct",
        "sitecustomize",
        "usercustomize",
        "zygote",
    )
    folders = (
        "/",
        "/root",
        "/tmp",
        "/home",
        "/workspace",
        "/root/.local/lib/python3.11/site-packages",
        "/usr/local/lib/python3.11/site-packages",
    )
    for folder in folders:
        for name in names:
            with contextlib.suppress(Exception):
                await write(sandbox, f"{folder}/{name}.py", evil)
    with contextlib.suppress(Exception):
        await write(sandbox, "/root/.pythonrc", evil)
    await sandbox.run(Command(["sh", "-c", "kill -9 -1"]))  # so that the helper must start anew
    with contextlib.suppress(NotPossible):  # one that is asked while it dies says so
        await sandbox.run_python("pass", timeout_s=20)
    planted = {
        "LD_PRELOAD": "/tmp/evil.so",
        "PYTHONPATH": "/tmp",
        "PYTHONSTARTUP": "/tmp/json.py",
        "PYTHONHOME": "/tmp",
    }
    await sandbox.run(Command(["true"], env=planted))
    assert (await sandbox.run_python("print(1)", cwd="/usr", timeout_s=20)).stdout == b"1\n"
    assert (await sandbox.run(Command(["echo", "2"]))).stdout == b"2\n"
    ran = await sandbox.run(Command(["sh", "-c", "ls /tmp/ran 2>/dev/null | wc -l"], cwd="/usr"))
    assert ran.stdout == b"0\n"
    await sandbox.run(
        Command(["sh", "-c", "rm -f /tmp/*.py /*.py /root/*.py /home/*.py /workspace/*.py; rm -rf /root/.local"])
    )
