"""Files and working folders that a command arranged so that the agent, or the node, would reach the wrong thing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path

import pytest

from hub_server.sandbox_node.errors import FileRefused
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command, Level
from tests.hub_server.sandbox_node.attacks.conftest import write

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def read(sandbox: Sandbox, path: str) -> bytes | str:
    """Return the file's content, or why it was refused; an operation that does not end fails the test."""
    try:
        async with asyncio.timeout(10):
            content = b""
            async for part in sandbox.read_file(path, length=1 << 20):
                content += part
            return content
    except FileRefused as refused:
        return refused.reason


async def link(sandbox: Sandbox, target: str, path: str) -> None:
    assert (await sandbox.run(Command(["ln", "-sfn", target, path]))).exit_code == 0


async def test_links_to_the_host_lead_to_the_sandboxes_own_files(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = secrets.token_hex(8)
    tmp_path.joinpath("secret").write_text(secret)
    shadow = Path("/etc/shadow").read_bytes() if os.access("/etc/shadow", os.R_OK) else b"root:"
    targets = [
        str(tmp_path / "secret"), f"/proc/1/root{tmp_path}/secret", f"../../../../../../..{tmp_path}/secret",
        f"/proc/self/cwd/../..{tmp_path}/secret", "/etc/shadow", "/proc/1/root/etc/shadow",
    ]  # fmt: skip
    for target in targets:
        await link(sandbox, target, "/tmp/innocent")
        got = await read(sandbox, "/tmp/innocent")
        assert got in ("not_found", "denied", "other") or (
            isinstance(got, bytes) and got not in (shadow, secret.encode())
        )
        assert await read(sandbox, target) != secret.encode()


async def test_an_upload_through_a_link_stays_inside(sandbox: Sandbox, tmp_path: Path) -> None:
    await link(sandbox, str(tmp_path), "/tmp/folder")
    await link(sandbox, str(tmp_path / "file"), "/tmp/file")
    for path in (
        "/tmp/folder/file",
        "/tmp/file",
        f"{tmp_path}/file",
        f"/proc/1/root{tmp_path}/file",
        "/../../../tmp/x",
    ):
        with contextlib.suppress(FileRefused):
            await write(sandbox, path, b"from inside")
    assert list(tmp_path.iterdir()) == []
    assert await sandbox.is_alive()


async def test_the_agents_own_descriptors_and_memory_are_not_read_for_a_link(sandbox: Sandbox) -> None:
    """Whoever reads the agent's pipe would take the node's words; whoever writes it would speak for the agent."""
    for number in range(24):
        await link(sandbox, f"/proc/self/fd/{number}", "/tmp/innocent")
        got = await read(sandbox, "/tmp/innocent")
        # Numbers are those of processes in the control group of commands, which are seen from inside anyway.
        is_list_of_own = isinstance(got, bytes) and got.replace(b"\n", b"").isdigit()
        assert is_list_of_own or got in ("not_found", "not_a_file", "denied", "is_a_directory", "other", b""), got
        for path in ("/tmp/innocent", f"/proc/self/fd/{number}", f"/proc/1/fd/{number}"):
            with contextlib.suppress(FileRefused):  # or a new file takes the place of the link
                await write(sandbox, path, b"\0" * 64)
        assert await sandbox.is_alive(), number
    for target in ("/proc/self/mem", "/proc/self/environ", "/proc/1/mem", "/proc/thread-self/mem"):
        await link(sandbox, target, "/tmp/innocent")
        got = await read(sandbox, "/tmp/innocent")
        assert isinstance(got, str) or b"PATH=" in got or got == b"", got
    assert await sandbox.is_alive()
    assert (await sandbox.run(Command(["echo", "still"]))).stdout == b"still\n"


async def test_files_without_an_end_or_a_beginning_hold_up_nobody(sandbox: Sandbox) -> None:
    await sandbox.run(Command(["sh", "-c", "rm -f /tmp/pipe; mkfifo /tmp/pipe"]))
    for path in ("/dev/zero", "/dev/tty", "/tmp/pipe", "/dev/ptmx", "/tmp", "/dev/fd/0", "/dev/stdin"):
        got = await read(sandbox, path)
        assert got in ("not_a_file", "is_a_directory", "denied", "other", "not_found"), (path, got)
    async with asyncio.timeout(10):
        for path in ("/tmp/pipe", "/dev/zero", "/proc/sysrq-trigger"):
            try:
                await write(sandbox, path, b"x")
            except FileRefused:
                continue
            facts = await sandbox.stat(path)
            assert facts.kind == "file", "what was there was written into"
    assert await sandbox.is_alive()


async def test_a_working_folder_behind_a_descriptor_leads_nowhere(sandbox: Sandbox) -> None:
    """CVE-2024-21626: the runtime had a folder of the host open, and the working folder was set through it."""
    inside = (await sandbox.run(Command(["stat", "-c", "%d:%i", "/"]))).stdout
    for number in range(3, 24):
        for folder in (f"/proc/self/fd/{number}", f"/proc/self/fd/{number}/../../..", f"/proc/1/fd/{number}"):
            finished = await sandbox.run(
                Command(["sh", "-c", "cd -P ../../../../../.. && stat -c %d:%i ."], cwd=folder)
            )
            assert finished.exit_code == 126 or finished.stdout == inside, (folder, finished.stdout, finished.stderr)


async def test_the_runtime_of_the_agent_cannot_be_overwritten_by_running_it(sandbox: Sandbox) -> None:
    """CVE-2019-5736: a command that is the runtime itself, and writes to its own program."""
    code = "import os\nos.close(os.open('/proc/self/exe', os.O_WRONLY))"
    finished = await sandbox.run(Command(["/proc/self/exe", "-c", code]))
    assert finished.exit_code != 0
    inside = "exec 3<>/proc/self/exe || cat /dev/null > /run/prime/start.pyc || touch /run/prime/bin/python3"
    finished = await sandbox.run(Command(["sh", "-c", inside]))
    assert finished.exit_code != 0
    assert any(words in finished.stderr for words in (b"Read-only", b"Permission denied", b"Text file busy"))
    assert await sandbox.is_alive()


async def test_what_is_written_into_an_image_is_seen_in_no_other_sandbox(sandbox: Sandbox) -> None:
    if sandbox.enforcement.level < Level.CONTAINER:
        pytest.skip("there is no layer over the image on this host")
    name = f"/etc/profile.d-{secrets.token_hex(4)}"
    await write(sandbox, name, b"echo mine")
    await write(sandbox, "/etc/passwd", b"evil::0:0::/:/bin/sh\n")
    assert not os.path.exists(name)
    assert b"evil" not in Path("/etc/passwd").read_bytes()
