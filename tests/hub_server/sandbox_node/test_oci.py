"""Sandboxes of the container runtimes that are installed, made for real."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE
from hub_server.sandbox_node.backends.oci import OciBackend, runtime_of
from hub_server.sandbox_node.errors import NotPossible, NotStarted
from hub_server.sandbox_node.images.store import ImageStore
from hub_server.sandbox_node.launcher import oci
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, EndKind, Finished, Held, Level, Limits
from tests.hub_server.sandbox_node.image_archives import busybox_root, tar

in_one_loop = pytest.mark.asyncio(loop_scope="module")
DELETED = End(EndKind.DELETED, "deleted")
LIMITS = Limits(memory_bytes=128 * MEBIBYTE, processes=64)
LEVELS = {"crun": Level.CONTAINER, "runc": Level.CONTAINER, "runsc": Level.GVISOR}


@pytest.fixture(scope="session")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy of the interpreter all tests share."""
    return tmp_path_factory.mktemp("oci")


async def opened(name: str, folder: Path) -> OciBackend:
    try:
        return await OciBackend.open_with(folder, runtime_of(name))
    except NotPossible as problem:
        pytest.skip(f"{name} makes no sandbox on this host: {problem}")


# What is the same for crun and runc is tried with one of them; the other's turn is in the slow tests.
@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["crun", pytest.param("runc", marks=pytest.mark.slow), "runsc"]
)
async def backend(request: pytest.FixtureRequest, runtime_folder: Path) -> AsyncIterator[OciBackend]:
    made = await opened(request.param, runtime_folder)
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(backend: OciBackend) -> AsyncIterator[Sandbox]:
    confined = await backend.create("one", HOST_IMAGE, LIMITS)
    made = Sandbox("one", "host", confined, {"PATH": "/usr/bin:/bin"})
    yield made
    await made.destroy(DELETED)


async def shell(sandbox: Sandbox, text: str) -> Finished:
    return await sandbox.run(Command(["/bin/sh", "-c", text], timeout_s=60))


@in_one_loop
async def test_a_sandbox_runs_commands_snippets_and_files(sandbox: Sandbox, backend: OciBackend) -> None:
    kind = backend.runtime.kind.value
    assert sandbox.enforcement.level == backend.level == LEVELS[kind]
    assert sandbox.enforcement.backend == f"oci ({kind})"
    finished = await shell(sandbox, "id -u; cat /etc/hostname; echo $HOME; echo wrong >&2; exit 3")
    assert (finished.exit_code, finished.stderr) == (3, b"wrong\n")
    assert finished.stdout.split()[:2] == [b"0", b"sandbox"]
    assert (await sandbox.run_python("print(6 * 7)", timeout_s=30)).stdout == b"42\n"

    async def content() -> AsyncIterator[bytes]:
        yield b"x" * 100_000

    await sandbox.write_file("/workspace/a/b.txt", content(), most_bytes=1024**2)
    assert (await shell(sandbox, "wc -c < /workspace/a/b.txt")).stdout == b"100000\n"
    assert b"".join([chunk async for chunk in sandbox.read_file("/workspace/a/b.txt", 99_990)]) == b"x" * 10


@in_one_loop
async def test_sandboxes_live_beside_each_other(sandbox: Sandbox, backend: OciBackend) -> None:
    other = await backend.create("two", HOST_IMAGE, LIMITS)
    await other.destroy()
    assert (await shell(sandbox, "echo still here")).stdout == b"still here\n"


@in_one_loop
async def test_runc_makes_sandboxes_too(runtime_folder: Path) -> None:
    backend = await opened("runc", runtime_folder)
    name = f"runc-{os.getpid()}"
    confined = await backend.create(name, HOST_IMAGE, LIMITS)
    sandbox = Sandbox(name, "host", confined, {"PATH": "/usr/bin:/bin"})
    assert (await shell(sandbox, "id -u")).stdout == b"0\n"
    assert sandbox.enforcement.level == Level.CONTAINER
    await sandbox.destroy(DELETED)
    assert groups_named(name) == []
    await backend.close()


@in_one_loop
async def test_what_is_the_hosts_is_out_of_reach(sandbox: Sandbox, backend: OciBackend, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    tried = (
        f"cat {tmp_path}/secret; ls /root; touch /usr/touched && echo WROTE; mount -t tmpfs x /mnt && echo MOUNTED;"
        " echo 1 > /proc/sys/kernel/panic && echo SET; ls /sys/fs/cgroup; cat /proc/1/environ; ls /proc/1/root"
    )
    finished = await shell(sandbox, tried)
    for word in (b"s3cret", b"WROTE", b"MOUNTED", b"SET"):
        assert word not in finished.stdout
    status = (await shell(sandbox, "grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status")).stdout.decode()
    if backend.runtime.kind is not oci.Kind.RUNSC:
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        owners = (await shell(sandbox, "cat /proc/self/uid_map")).stdout.split()
        assert owners[0] == b"0"
        assert int(owners[1]) > 65536
    pids = (await shell(sandbox, "echo /proc/[0-9]*")).stdout.split()
    assert len(pids) < 8


@in_one_loop
async def test_what_only_root_of_the_host_may_read_stays_so(sandbox: Sandbox) -> None:
    closed = Path("/usr/share/prime-closed-for-a-test")
    if os.geteuid() != 0:
        pytest.skip("only root can write to /usr")
    closed.write_text("s3cret")
    try:
        closed.chmod(0o600)
        finished = await shell(sandbox, f"cat {closed}; cat /usr/bin/env > /dev/null && echo OPEN")
    finally:
        closed.unlink()
    assert b"s3cret" not in finished.stdout
    assert b"OPEN" in finished.stdout
    assert b"Permission denied" in finished.stderr


@in_one_loop
async def test_a_full_disk_and_too_much_memory_are_met_inside(sandbox: Sandbox, backend: OciBackend) -> None:
    for place in ("/tmp", "/root", "/workspace"):
        full = await shell(sandbox, f"dd if=/dev/zero of={place}/x bs=1M count=100 2>&1; rm {place}/x")
        assert b"No space left" in full.stdout
    assert sandbox.enforcement.limits.disk_bytes == 64 * MEBIBYTE
    assert sandbox.enforcement.held["disk_bytes"] == Held.LOWERED
    bomb = Command(["/usr/bin/python3", "-c", "x = bytearray(600 * 2**20); print('HELD')"], timeout_s=60)
    if backend.runtime.kind is oci.Kind.RUNSC:
        # gVisor and all that runs in it are one to the host; it says so in its notes.
        assert any("ends as a whole" in note for note in sandbox.enforcement.notes)
        return
    finished = await sandbox.run(bomb)
    assert b"HELD" not in finished.stdout
    assert finished.ended.oom_killed
    assert (await shell(sandbox, "echo alive")).stdout == b"alive\n"


TAKING = {
    "memory": "x = b'1' * (900 * 2**20)",
    "processes": "import os, time\nwhile True:\n    os.fork() or time.sleep(60)",
    "files": "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w')\n    n += 1",
    "disk": "f = open('/tmp/x', 'wb')\nwhile True:\n    f.write(bytes(2**20))",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", list(TAKING))
@in_one_loop
async def test_a_sandbox_of_gvisor_that_takes_too_much_is_stopped_alone(runtime_folder: Path, what: str) -> None:
    """It ends as a whole where a limit is met by gVisor itself, and says so; its neighbour works on."""
    backend = await opened("runsc", runtime_folder)
    try:
        sandboxes = []
        for name in ("greedy", "neighbour"):
            confined = await backend.create(name, HOST_IMAGE, replace(LIMITS, inodes=2000))
            sandboxes.append(Sandbox(name, "host", confined, {"PATH": "/usr/bin:/bin"}))
        greedy, neighbour = sandboxes
        session = await greedy.start(Command(["/usr/bin/python3", "-c", TAKING[what]], timeout_s=40))
        while session.ended is None and not greedy.end.done():
            assert (await shell(neighbour, "echo works")).stdout == b"works\n"
            await asyncio.sleep(0.2)
        if what == "memory":
            assert (await asyncio.wait_for(greedy.end, 30)).kind == EndKind.OOM_KILLED
        if greedy.end.done():
            assert greedy.end.result().kind in (EndKind.OOM_KILLED, EndKind.FAILED)
        assert (await shell(neighbour, "echo works")).stdout == b"works\n"
        await greedy.destroy(DELETED)
        await neighbour.destroy(DELETED)
    finally:
        await backend.close()


@in_one_loop
async def test_nothing_is_left_of_a_sandbox_that_is_destroyed_while_it_forks(backend: OciBackend) -> None:
    name = f"forks-{os.getpid()}"
    confined = await backend.create(name, HOST_IMAGE, LIMITS)
    sandbox = Sandbox(name, "host", confined, {"PATH": "/usr/bin:/bin"})
    endless = "while true; do setsid sleep 7321 & sleep 0.05; done"
    await sandbox.start(Command(["/bin/sh", "-c", endless]))
    await asyncio.sleep(0.3)
    await sandbox.destroy(DELETED)
    assert processes_with("7321") == []
    assert groups_named(name) == []


@in_one_loop
async def test_an_image_of_its_own_can_be_written_and_stays_as_it_was(backend: OciBackend, tmp_path: Path) -> None:
    for program in ("umoci", "bwrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    store = ImageStore(tmp_path / "images")
    store.import_archive(tar(tmp_path / "root.tar", busybox_root()), "busybox:1")
    image = store.find("busybox:1")
    assert image.path is not None
    confined = await backend.create("two", image, LIMITS)
    sandbox = Sandbox("two", image.name, confined, {"PATH": "/bin"})
    tried = "cat /etc/made-of; echo new > /etc/made-of; rm /bin/ls; cat /etc/made-of; touch /x && id -u; ls 2>&1"
    finished = await shell(sandbox, tried)
    assert finished.stdout.split()[:3] == [b"busybox", b"new", b"0"]
    assert (image.path / "etc/made-of").read_text() == "busybox\n"
    assert (image.path / "bin/ls").is_symlink()
    root = image.path
    del image
    assert not store.remove("busybox:1")
    assert (await shell(sandbox, "cat /etc/group")).stdout.startswith(b"root:")
    await sandbox.destroy(DELETED)
    store.collect()
    assert not root.exists()


@in_one_loop
async def test_an_image_without_anything_to_run_is_no_obstacle_to_the_agent(
    backend: OciBackend, tmp_path: Path
) -> None:
    for name in ("proc", "dev", "sys", "run", "tmp"):
        (tmp_path / name).mkdir()
    empty = RootFilesystem("empty:1", tmp_path, {})
    confined = await backend.create("empty", empty, LIMITS)
    sandbox = Sandbox("empty", "empty:1", confined, {"PATH": "/bin"})
    facts = await sandbox.stat("/etc/hostname")
    assert facts.size == len("sandbox\n")
    await sandbox.destroy(DELETED)


@in_one_loop
async def test_a_runtime_that_fails_is_quoted_and_leaves_nothing(backend: OciBackend, tmp_path: Path) -> None:
    name = f"broken-{os.getpid()}"
    gone = RootFilesystem("gone:1", tmp_path / "nothing", {})
    with pytest.raises(NotStarted) as caught:
        await backend.create(name, gone, LIMITS)
    assert "nothing" in caught.value.detail
    assert groups_named(name) == []


@in_one_loop
async def test_devices_of_the_host_keep_their_owners(runtime_folder: Path) -> None:
    """runsc gives its standard streams to nobody, whatever they are."""
    before = {path: os.stat(path) for path in ("/dev/null", "/dev/zero", "/dev/tty")}
    backend = await opened("runsc", runtime_folder)
    await backend.close()
    for path, facts in before.items():
        after = os.stat(path)
        assert (after.st_uid, after.st_gid, after.st_mode) == (facts.st_uid, facts.st_gid, facts.st_mode)


@in_one_loop
async def test_what_only_calls_itself_gvisor_is_not_taken_for_it(runtime_folder: Path, tmp_path: Path) -> None:
    crun = shutil.which("crun")
    if crun is None or os.geteuid() != 0:
        pytest.skip("crun is not installed, or this is not root")
    pretender = tmp_path / "runsc"
    pretender.write_text(f"""#!/usr/bin/python3
import os, sys
mine = ("--network", "--ignore-cgroups", "--oci-seccomp", "--file-access")
kept = [word for word in sys.argv[1:] if not word.startswith(mine)]
os.execv({crun!r}, [{crun!r}, "--cgroup-manager=disabled", *kept])
""")
    pretender.chmod(0o755)
    with pytest.raises(NotPossible, match="on the host's own kernel"):
        await OciBackend.open_with(runtime_folder, runtime_of(str(pretender)))


def test_a_runtime_gets_no_streams_but_pipes(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    try:
        oci.refuse_other_streams([read_end, write_end])
        assert stat.S_ISCHR(os.fstat(null).st_mode)
        with pytest.raises(OSError, match="is no pipe"):
            oci.refuse_other_streams([read_end, null])
    finally:
        for descriptor in (read_end, write_end, null):
            os.close(descriptor)


def test_a_runtime_that_is_not_there_is_named() -> None:
    with pytest.raises(NotPossible, match="/no/such/crun is not installed"):
        runtime_of("/no/such/crun")
    with pytest.raises(NotPossible, match="no container runtime that is known"):
        runtime_of(shutil.which("true") or "true")


def processes_with(word: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"sleep {word}" in line and "sh -c" not in line:
            found.append(line)
    return found


def groups_named(name: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*/prime-sandboxes/*/{name}"))
