"""Images that were made to harm the host: links where things are mounted, set-uid programs, devices."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends import Backend, RootFilesystem
from hub_server.sandbox_node.errors import NotStarted
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command, End, EndKind, Level
from tests.hub_server.sandbox_node.attacks.conftest import SMALL

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make such images, and sandboxes of them"),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is not installed"),
]

DELETED = End(EndKind.DELETED, "the test is over")
APPLETS = ("sh", "ls", "cat", "id", "echo", "head", "touch", "mkdir", "stat")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A root file system with busybox alone, which needs no library."""
    busybox = shutil.which("busybox")
    assert busybox
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True)
    if linked.returncode == 0 and "not a dynamic" not in linked.stdout:
        pytest.skip("busybox is not linked statically")
    root = tmp_path / "image"
    for name in ("bin", "etc", "tmp", "proc", "dev", "run", "root", "var"):
        root.joinpath(name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for applet in APPLETS:
        root.joinpath("bin", applet).symlink_to("busybox")
    root.joinpath("etc/passwd").write_text("root::0:0::/root:/bin/sh\nsomebody::1000:1000::/tmp:/bin/sh\n")
    tmp_path.chmod(0o755)
    return root


async def made(backend: Backend, root: Path, name: str) -> Sandbox | None:
    """Make a sandbox of the image; None where it is refused, which is as good."""
    filesystem = RootFilesystem(f"{name}:latest", root, {})
    try:
        return Sandbox(name, filesystem.name, await backend.create(name, filesystem, SMALL), {})
    except NotStarted:
        return None


async def test_links_of_an_image_lead_nothing_that_is_mounted_or_written_out_of_it(
    backend: Backend, image: Path, tmp_path: Path
) -> None:
    target = tmp_path / "host"
    for name in ("etc", "proc", "dev", "run", "tmp", "root", "prime", "shm", "pts"):
        target.joinpath(name).mkdir(parents=True)
    before = sorted(str(path) for path in target.rglob("*"))
    ways = {
        "absolute": str(target),
        "relative": f"../../../../../../../..{target}",
        "through": f"/proc/self/root{target}",
    }
    for number, (way, place) in enumerate(ways.items()):
        root = tmp_path / f"linked-{way}"
        shutil.copytree(image, root, symlinks=True)
        for name in ("etc", "proc", "dev", "run", "tmp", "root"):
            shutil.rmtree(root / name)
            root.joinpath(name).symlink_to(f"{place}/{name}")
        sandbox = await made(backend, root, f"linked-{number}")
        if sandbox is not None:
            finished = await sandbox.run(
                Command(["/bin/sh", "-c", "echo in > /tmp/x; echo in > /etc/x; cat /etc/hosts"])
            )
            assert b"localhost" in finished.stdout or finished.exit_code != 0
            await sandbox.destroy(DELETED)
        assert sorted(str(path) for path in target.rglob("*")) == before, way
        assert not root.joinpath("etc/hosts").exists()


async def test_set_uid_programs_of_an_image_give_no_rights(backend: Backend, image: Path) -> None:
    for name in ("id", "cat"):
        program = image / "set-uid" / name
        program.parent.mkdir(exist_ok=True)
        shutil.copy(image / "bin/busybox", program)
        program.chmod(0o6755)
    sandbox = await made(backend, image, "set-uid")
    assert sandbox is not None
    shown = await sandbox.run(Command(["/set-uid/id"], user="1000"))
    assert b"uid=1000" in shown.stdout, shown
    assert b"euid=0" not in shown.stdout
    status = await sandbox.run(Command(["/set-uid/cat", "/proc/self/status"], user="1000"))
    ids = next(line for line in status.stdout.splitlines() if line.startswith(b"Uid:"))
    assert set(ids.split()[1:]) == {b"1000"}
    await sandbox.destroy(DELETED)


async def test_devices_of_an_image_cannot_be_opened(backend: Backend, image: Path) -> None:
    nodes = {"mem": (stat.S_IFCHR, 1, 1), "kmsg": (stat.S_IFCHR, 1, 11), "null": (stat.S_IFCHR, 1, 3),
             "disk": (stat.S_IFBLK, 254, 0)}  # fmt: skip
    for name, (kind, major, minor) in nodes.items():
        os.mknod(image / name, kind | 0o666, os.makedev(major, minor))
        os.chmod(image / name, 0o666)
    sandbox = await made(backend, image, "devices")
    assert sandbox is not None
    for name in nodes:
        finished = await sandbox.run(Command(["/bin/head", "-c", "1", f"/{name}"]))
        assert finished.exit_code != 0, name
        assert b"denied" in finished.stderr or b"not permitted" in finished.stderr or b"No such" in finished.stderr
    await sandbox.destroy(DELETED)


async def test_what_is_written_over_an_image_stays_out_of_it(backend: Backend, image: Path) -> None:
    before = {str(path): path.lstat().st_mtime_ns for path in sorted(image.rglob("*"))}
    sandbox = await made(backend, image, "written")
    assert sandbox is not None
    write = "echo x > /bin/new; echo x >> /etc/passwd; rm -f /bin/ls; chmod 777 /bin/busybox; mkdir /etc/d; echo done"
    assert (await sandbox.run(Command(["/bin/sh", "-c", write]))).stdout == b"done\n"
    again = await made(backend, image, "written-again")
    assert again is not None
    assert b"x" not in (await again.run(Command(["/bin/cat", "/etc/passwd"]))).stdout
    if backend.level >= Level.CONTAINER:
        assert {str(path): path.lstat().st_mtime_ns for path in sorted(image.rglob("*"))} == before
    for each in (sandbox, again):
        await each.destroy(DELETED)
