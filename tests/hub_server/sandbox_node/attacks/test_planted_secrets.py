"""Secrets are planted all over the host; a program inside reads and asks whatever it can, and finds none of them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, Limits
from tests.hub_server.sandbox_node.attacks.backends_here import PROGRAMS
from tests.hub_server.sandbox_node.attacks.conftest import MakeSandbox, program, write

in_one_loop = pytest.mark.asyncio(loop_scope="module")

MARK = "PLANTED-BY-A-TEST-"
FOLDERS = ["/tmp", "/var/tmp", "/root", "/home", "/run", "/dev/shm", "/etc", "/opt", "/srv", "/mnt", "/var/lib", "/"]


def secret(where: str) -> str:
    """Return a new secret that says where it is planted."""
    return f"{MARK}{where}-{secrets.token_hex(4)}"


@dataclass
class Planted:
    """Where secrets are, for the search on the host itself."""

    port: int = 0
    sleeper: int = 0
    folder: Path = Path()
    only_root: list[Path] = field(default_factory=list)


def serve(listener: socket.socket, words: str) -> None:
    """Tell the words to whoever connects."""

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.sendall(words.encode())

    threading.Thread(target=answer, daemon=True).start()


@pytest.fixture(scope="module", autouse=True)
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """Plant the secrets before any backend is opened, so that whatever this process hands down has them in reach."""
    left = Planted(folder=tmp_path_factory.mktemp("planted"))
    with contextlib.ExitStack() as stack:
        for folder in [*FOLDERS, str(left.folder)]:
            path = Path(folder, f"planted-{secrets.token_hex(4)}")
            with contextlib.suppress(OSError):
                path.write_text(secret(f"file-in-{folder.strip('/').replace('/', '-') or 'root'}"))
                stack.callback(path.unlink)
        for folder in ("/usr/local/share", "/usr/lib"):
            path = Path(folder, f"planted-{secrets.token_hex(4)}")
            with contextlib.suppress(OSError):
                path.write_text(secret("file-only-for-root"))
                path.chmod(0o600)
                left.only_root.append(path)
                stack.callback(path.unlink)
        os.environ["PLANTED_TOKEN"] = secret("environment")
        stack.callback(os.environ.pop, "PLANTED_TOKEN")
        sleeper = subprocess.Popen(["sleep", "1000.5"], env={"TOKEN": secret("environment-of-another")})
        talker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", secret("argument")])
        for process in (sleeper, talker):
            stack.callback(process.wait)
            stack.callback(process.kill)
        left.sleeper = talker.pid
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        left.port = tcp.getsockname()[1]
        serve(tcp, secret("port"))
        for name in (f"\0prime-{secrets.token_hex(4)}", str(left.folder / "socket")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
            serve(listener, secret("unix-socket"))
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        segment = libc.shmget(0, 4096, 0o1666)
        words = secret("shared-memory").encode()
        ctypes.memmove(libc.shmat(segment, None, 0), words, len(words))
        stack.callback(libc.shmctl, segment, 0, None)
        # A file that is open here, and that everything started from here would inherit.
        inherited = os.open(left.folder, os.O_RDONLY)
        os.set_inheritable(inherited, True)
        stack.callback(os.close, inherited)
        yield left


def test_the_search_finds_the_secrets_where_nothing_protects_them(planted: Planted) -> None:
    folders = [str(planted.folder), f"/proc/{planted.sleeper}", "/dev/shm"]
    argv = [sys.executable, str(PROGRAMS / "hunt.py"), "--port", str(planted.port), *folders]
    hunt = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=100).stdout)
    kinds = {found.removeprefix(MARK).rsplit("-", 1)[0] for found, _ in hunt["found"]}
    assert {"argument", "port", "unix-socket", "shared-memory", "environment", "file-in-dev-shm"} <= kinds


@in_one_loop
async def test_no_secret_of_the_host_or_of_a_neighbour_is_found_inside(make_sandbox: MakeSandbox) -> None:
    roomy = Limits(cpu_cores=2.0, memory_bytes=256 * MEBIBYTE, disk_bytes=64 * MEBIBYTE, inodes=20_000, processes=64)
    hunted, neighbour = await make_sandbox(roomy), await make_sandbox(roomy)
    await write(neighbour, "/tmp/secret", secret("file-of-a-neighbour").encode())
    argument = secret("argument-of-a-neighbour")
    holder = ["python3", "-c", "import time; time.sleep(100)", argument]
    await neighbour.start(Command(holder, env={"TOKEN": secret("environment-of-a-neighbour")}))
    inside = [secret("inside-file"), secret("inside-environment")]
    await write(hunted, "/home/planted", inside[0].encode())

    hunt = await program(hunted, "hunt", env={"PLANTED": inside[1]}, timeout_s=100)
    assert hunt.exit_code == 0, hunt.stderr.decode()
    said = json.loads(hunt.stdout)
    assert {found for found, _ in said["found"]} == set(inside), "a secret from outside was found"
    looked = said["looked"]
    assert looked["ports"] == 65535
    assert looked["files"] > 300
    assert looked["folders"] > 50


@in_one_loop
async def test_a_file_of_the_host_that_only_root_may_read_stays_unread(sandbox: Sandbox, planted: Planted) -> None:
    assert planted.only_root
    for path in planted.only_root:
        for what in (["cat", str(path)], ["cp", str(path), "/tmp/taken"], ["ln", str(path), "/tmp/linked"]):
            finished = await sandbox.run(Command(what))
            assert finished.exit_code != 0
            assert MARK.encode() not in finished.stdout
            assert b"denied" in finished.stderr or b"cross-device" in finished.stderr
