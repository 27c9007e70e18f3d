"""Sandboxes of bubblewrap, made for real."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
from hub_server.sandbox_node.errors import NotPossible, NotStarted
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
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
LIMITS = Limits(cpu_cores=0.5, memory_bytes=256 * MEBIBYTE, disk_bytes=32 * MEBIBYTE, inodes=2000, processes=64)
REPOSITORY = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="session")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy of the interpreter all tests share."""
    return tmp_path_factory.mktemp("bwrap")


async def opened(folder: Path) -> BwrapBackend:
    try:
        return await BwrapBackend.open(folder)
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")


@pytest.fixture
async def backend(runtime_folder: Path) -> AsyncIterator[BwrapBackend]:
    made = await opened(runtime_folder)
    yield made
    await made.close()


@pytest.fixture
async def contained(backend: BwrapBackend) -> BwrapBackend:
    """A backend whose sandboxes have control groups and user ids of their own."""
    if backend.level < Level.CONTAINER:
        pytest.skip(f"no containers on this host: {backend.notes}")
    return backend


@pytest.fixture
async def sandbox(backend: BwrapBackend) -> AsyncIterator[Sandbox]:
    made = await live(backend, "one")
    yield made
    await made.destroy(DELETED)


async def live(
    backend: BwrapBackend, name: str, limits: Limits = LIMITS, image: RootFilesystem = HOST_IMAGE
) -> Sandbox:
    return Sandbox(name, image.name, await backend.create(name, image, limits), {})


async def shell(sandbox: Sandbox, text: str) -> Finished:
    return await sandbox.run(Command(["/bin/sh", "-c", text], timeout_s=30))


async def test_a_command_runs_as_root_of_a_system_of_its_own(sandbox: Sandbox) -> None:
    finished = await shell(sandbox, "id -u; hostname; echo $$; ls /proc/1/root 2>&1 | tail -1; cat /etc/hostname")
    uid, hostname, pid, denied, etc = finished.stdout.decode().splitlines()
    assert (uid, hostname, etc) == ("0", "sandbox", "sandbox")
    assert int(pid) < 50
    assert "Permission denied" in denied


async def test_no_request_waits_for_one_that_does_not_read(sandbox: Sandbox) -> None:
    """Who has very many pipes gets small ones, which a long request does not fit into at once."""
    many = "import os, resource, time\n"
    many += "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
    many += "kept = [os.pipe() for _ in range(1500)]\nprint(len(kept), flush=True)\ntime.sleep(30)\n"
    session, follower = await sandbox.start_followed(Command(["python3", "-c", many]))
    with follower:
        assert isinstance(await asyncio.wait_for(follower.next(), 10), Output)
        async with asyncio.timeout(30):
            for _ in range(3):
                long = await sandbox.run(Command(["sh", "-c", "echo ${#LONG}"], env={"LONG": "x" * 50_000}))
                assert long.stdout == b"50000\n"
        await session.signal(signal.SIGKILL)


async def test_files_of_etc_keep_their_times_for_what_was_compiled_of_them(sandbox: Sandbox) -> None:
    finished = await shell(sandbox, "stat -c %Y /etc/profile")
    assert int(finished.stdout) == int(Path("/etc/profile").stat().st_mtime)


async def test_it_does_not_tell_where_the_node_keeps_its_files(sandbox: Sandbox, runtime_folder: Path) -> None:
    finished = await shell(sandbox, "cat /proc/self/mountinfo /proc/1/cmdline")
    assert str(runtime_folder).encode() not in finished.stdout


async def test_what_it_got_is_reported(contained: BwrapBackend) -> None:
    confined = await contained.create(
        "one", HOST_IMAGE, Limits(memory_bytes=256 * MEBIBYTE, disk_bytes=MEBIBYTE * 4096)
    )
    enforcement = confined.enforcement
    assert enforcement.level == Level.CONTAINER
    assert enforcement.held["disk_bytes"] == Held.LOWERED
    assert enforcement.limits.disk_bytes == 128 * MEBIBYTE
    assert enforcement.held["memory_bytes"] == enforcement.held["processes"] == Held.ENFORCED
    assert enforcement.held["open_files"] == Held.PER_PROCESS
    assert any("128 MiB" in note for note in enforcement.notes)
    await confined.destroy()


async def test_the_disk_is_full_at_its_limit_of_bytes_and_of_files_wherever_one_writes(sandbox: Sandbox) -> None:
    for folder in ("/tmp", "/root", "/workspace", "/etc", "/var/tmp", "/"):
        finished = await shell(
            sandbox, f"head -c 40M /dev/zero > {folder}/big; stat -c %s {folder}/big; rm {folder}/big"
        )
        assert b"No space left" in finished.stderr, folder
        assert int(finished.stdout) <= 32 * MEBIBYTE
    finished = await shell(sandbox, "cd /tmp; seq 3000 | xargs touch; ls | wc -l; rm -f *; touch again && echo room")
    count, room = finished.stdout.split()
    assert 1900 < int(count) < 2000
    assert room == b"room"


async def test_shared_memory_and_terminals_have_limits_too(sandbox: Sandbox) -> None:
    finished = await shell(sandbox, "head -c 200M /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big; touch /dev/new")
    assert int(finished.stdout) == 64 * MEBIBYTE
    assert b"Read-only" in finished.stderr
    count = (
        "import os\nopen_ = []\ntry:\n    while len(open_) < 500:\n        open_.append(os.openpty())\n"
        "except OSError as e:\n    print(len(open_), e.strerror)"
    )
    finished = await sandbox.run(Command(["python3", "-c", count]))
    assert finished.stdout == b"64 No space left on device\n"


async def test_a_program_in_want_of_memory_is_killed_and_its_sandbox_lives(contained: BwrapBackend) -> None:
    sandbox = await live(contained, "hungry")
    grown = await sandbox.run(Command(["python3", "-c", "b = bytearray(600 * 2**20)"], timeout_s=30))
    assert grown.exit_code == 137
    assert grown.ended.oom_killed
    together = "import os\nfor _ in range(6):\n    if not os.fork():\n        b = bytearray(100 * 2**20); os._exit(0)\n"
    many = await sandbox.run(Command(["python3", "-c", together + "while True: os.wait()"], timeout_s=30))
    assert many.exit_code != 0
    assert (await shell(sandbox, "echo still here")).stdout == b"still here\n"
    assert (sandbox.memory_bytes() or 0) < 256 * MEBIBYTE
    await sandbox.destroy(DELETED)


async def test_a_fork_bomb_meets_the_limit_and_leaves_the_neighbour_alone(contained: BwrapBackend) -> None:
    bombed, neighbour = await asyncio.gather(live(contained, "bombed"), live(contained, "neighbour"))
    bomb = (
        "import os, time\nn = 0\ntry:\n    while True:\n        if not os.fork():\n            time.sleep(60)\n"
        "        n += 1\nexcept OSError as e:\n    print(n, e.strerror)"
    )
    finished = await bombed.run(Command(["python3", "-c", bomb], timeout_s=30))
    count, why = finished.stdout.decode().split(maxsplit=1)
    assert int(count) < 64
    assert why == "Resource temporarily unavailable\n"
    assert (await shell(neighbour, "echo fine")).stdout == b"fine\n"
    await asyncio.gather(bombed.destroy(DELETED), neighbour.destroy(DELETED))


async def test_two_programs_that_never_rest_get_the_share_of_one_sandbox(contained: BwrapBackend) -> None:
    sandbox = await live(contained, "busy", Limits(cpu_cores=0.2, memory_bytes=128 * MEBIBYTE))
    spin = "import os, time\nos.fork()\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\n"
    spin += "print(time.process_time())"
    finished = await sandbox.run(Command(["python3", "-c", spin], timeout_s=30))
    used = sum(float(line) for line in finished.stdout.split())
    assert used < 0.6, "0.2 of a core for 1.5 s, and what a start costs"
    await sandbox.destroy(DELETED)


async def test_each_sandbox_has_user_ids_of_its_own_and_root_may_become_another_user(contained: BwrapBackend) -> None:
    one, two = await asyncio.gather(live(contained, "one"), live(contained, "two"))
    maps = [(await shell(each, "cat /proc/self/uid_map")).stdout.split() for each in (one, two)]
    assert [each[0] for each in maps] == [b"0", b"0"]
    assert [each[2] for each in maps] == [b"65536", b"65536"]
    assert abs(int(maps[0][1]) - int(maps[1][1])) >= 65536
    as_user = "import os\nos.setgid(1000); os.setuid(1000)\nprint(os.getuid())\nopen('/root/x', 'w')"
    finished = await shell(one, f'chown 1000 /workspace; python3 -c "{as_user}"; stat -c %u /workspace')
    assert finished.stdout == b"1000\n1000\n"
    assert b"PermissionError" in finished.stderr
    await asyncio.gather(one.destroy(DELETED), two.destroy(DELETED))


@pytest.fixture
def busybox(tmp_path: Path) -> RootFilesystem:
    """An image with one program, and with links where a sandbox has folders."""
    program = shutil.which("busybox")
    if program is None or b"statically" not in subprocess.run(["file", "-L", program], capture_output=True).stdout:
        pytest.skip("a static busybox is not installed")
    root = tmp_path / "image: with, odd\\name"
    for name in ("bin", "data"):
        (root / name).mkdir(parents=True)
    shutil.copy(program, root / "bin/busybox")
    for name in ("sh", "cat", "ls", "id", "rm", "stat", "touch", "head", "echo"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "data/file").write_text("of the image\n")
    (root / "data/private").write_text("of its root\n")
    (root / "data/private").chmod(0o600)
    for name, target in (("proc", "/data"), ("dev", "../../../../etc"), ("run", "/"), ("tmp", "/root"), ("etc", "/")):
        (root / name).symlink_to(target)
    return RootFilesystem("busybox:latest", root, {})


async def test_an_image_without_python_works_and_stays_as_it_is(
    contained: BwrapBackend, busybox: RootFilesystem
) -> None:
    sandbox = await live(contained, "small", LIMITS, busybox)
    said = (
        "id -u; cat /data/private; stat -c %u /data; rm -r /data && ls / | head -20; echo x > /bin/new && cat /bin/new"
    )
    finished = await shell(sandbox, said)
    lines = finished.stdout.decode().splitlines()
    assert (finished.exit_code, finished.stderr) == (0, b"")
    assert lines[:3] == ["0", "of its root", "0"]
    assert lines[3:] == ["bin", "dev", "etc", "proc", "run", "sys", "tmp", "x"]
    assert busybox.path is not None
    assert (busybox.path / "data/file").read_text() == "of the image\n"
    assert not (busybox.path / "bin/new").exists()
    await sandbox.destroy(DELETED)


async def test_an_image_that_is_gone_is_a_sandbox_that_was_not_made(backend: BwrapBackend, tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="No such file"):
        await backend.create("none", RootFilesystem("gone:latest", tmp_path / "gone", {}), LIMITS)
    again = await live(backend, "none")
    assert (await shell(again, "echo made")).stdout == b"made\n"
    await again.destroy(DELETED)


async def test_a_name_is_had_once_and_names_no_other_folder(backend: BwrapBackend) -> None:
    first = await live(backend, "one")
    for name in ("one", "../one", ".", "", "a/b"):
        with pytest.raises(NotStarted, match=r"already|no name"):
            await backend.create(name, HOST_IMAGE, LIMITS)
    assert (await shell(first, "echo still here")).stdout == b"still here\n"
    await first.destroy(DELETED)


async def test_a_sandbox_whose_first_process_had_no_memory_ended_of_that(contained: BwrapBackend) -> None:
    sandbox = await live(contained, "starved")
    # The agent's own group is larger than the jobs'; this lowers it below what the agent holds already.
    home = Path(contained._client.ready.homes["memory"]) / "starved"

    async def much() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MEBIBYTE)

    for group in (home / "jobs", home):
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
            if (group / name).exists():
                (group / name).write_text(str(24 * MEBIBYTE))
    with pytest.raises(Exception, match=r"ended|space"):
        await sandbox.write_file("/tmp/much", much(), most_bytes=1024 * MEBIBYTE)
    end = await asyncio.wait_for(sandbox.end, 10)
    assert end.kind == EndKind.OOM_KILLED


async def test_making_and_destroying_take_no_longer_than_they_should(contained: BwrapBackend) -> None:
    """Far above what is usual: for what was forgotten in a loop, not for what a busy machine does."""
    began = time.monotonic()
    for number in range(5):
        confined = await contained.create(f"quick-{number}", HOST_IMAGE, LIMITS)
        await confined.destroy()
    assert time.monotonic() - began < 10


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that other users get to, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


async def test_a_user_who_is_not_root_gets_sandboxes_and_is_told_what_they_lack(open_to_all: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to become another user, one must be root")
    python = next((path for path in ("/usr/bin/python3", sys.executable) if _runs_for_others(path)), None)
    if python is None:
        pytest.skip("no Python that other users may run has the version that is needed")
    program = textwrap.dedent("""
        import asyncio, pathlib, sys
        sys.path.insert(0, sys.argv[1])
        from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
        from hub_server.sandbox_node.sandbox import Sandbox
        from hub_server.sandbox_node.specification import Command, End, EndKind, Limits

        async def main():
            backend = await BwrapBackend.open(pathlib.Path(sys.argv[2]))
            confined = await backend.create("one", HOST_IMAGE, Limits(memory_bytes=64 << 20, processes=20, inodes=500))
            print(backend.level, *(f"{name}={held}" for name, held in confined.enforcement.held.items()), sep="|")
            sandbox = Sandbox("one", "host", confined, {})
            full = Sandbox("full", "host", await backend.create("full", HOST_IMAGE, Limits(processes=20)), {})
            sleeps = "for i in $(seq 60); do sleep 30 & done; jobs | wc -l; sleep 30"
            await full.start(Command(["/bin/bash", "-c", sleeps]))
            for command in ("id -u; ls /root /home; cat /etc/shadow",
                            "head -c 40M /dev/zero > /tmp/x; cd /tmp; touch $(seq 600)",
                            "for i in $(seq 60); do sleep 5 & done; jobs | wc -l",
                            "python3 -c 'bytearray(200 << 20)'"):
                print(await sandbox.run(Command(["/bin/bash", "-c", command], timeout_s=30)))
            await full.destroy(End(EndKind.DELETED, "deleted"))
            await backend.close()

        asyncio.run(main())
    """)
    copy = open_to_all / "packages"
    for package in ("sandbox_node", "sandboxes"):
        shutil.copytree(REPOSITORY / "hub_server" / package, copy / "hub_server" / package)
    (copy / "hub_server/__init__.py").touch()
    folder = open_to_all / "node"
    folder.mkdir()
    os.chown(folder, 54321, 54321)
    done = await asyncio.to_thread(
        subprocess.run,
        [python, "-I", "-S", "-B", "-c", program, str(copy), str(folder)],
        user=54321, group=54321, extra_groups=[], capture_output=True, text=True, timeout=120, cwd="/",
        env={"PATH": os.defpath},
    )  # fmt: skip
    if "NotPossible" in done.stderr and "user namespace" in done.stderr:
        pytest.skip(f"users make no user namespaces here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    facts, identity, disk, processes, memory = done.stdout.splitlines()
    assert facts.startswith(
        "restricted|cpu_cores=not enforced|memory_bytes=per process|disk_bytes=lowered|inodes=enforced"
    )
    assert "stdout=b'0\\n/home:" in identity
    assert "/etc/shadow: No such file" in identity
    assert "No space left on device" in disk
    assert "Resource temporarily unavailable" in processes
    assert "MemoryError" in memory


def _runs_for_others(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info >= (3, 11))"], user=54321, capture_output=True, text=True
    )
    return done.stdout == "True\n"
