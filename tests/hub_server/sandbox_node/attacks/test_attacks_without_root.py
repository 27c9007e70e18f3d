"""The same attacks against sandboxes of a user who is not root: level `restricted`, one user id, no control groups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server.sandbox_node.attacks.backends_here import ATTACKING, PROGRAMS, attacks, outcomes

REPOSITORY = Path(__file__).parents[4]
SOMEBODY = 54321
# Not refused, and why it reaches nothing all the same.
ALLOWED = {"being_root_of_the_host": "its users are mapped twice; what is shown is the inner map, of root to root"}
# Devices are bound from the host, for only root may make some; so locks on them are shared.
SHARED = {"a lock on a file of the image", "a record lock on a file of the image"}

ATTACK = textwrap.dedent("""
    import asyncio, json, pathlib, sys
    sys.path.insert(0, sys.argv[1])
    from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
    from hub_server.sandbox_node.sandbox import Sandbox
    from hub_server.sandbox_node.specification import Command, Limits

    async def run(sandbox, *argv, **more):
        command = Command(["python3", *argv], env={"HOST_PORT": sys.argv[4], "HOST_ABSTRACT": "x"}, timeout_s=100)
        return (await sandbox.run(command, **more)).stdout.decode()

    async def main():
        backend = await BwrapBackend.open(pathlib.Path(sys.argv[2]))
        pair = []
        for name in ("one", "two"):
            limits = Limits(memory_bytes=256 << 20, processes=200, inodes=5000)
            sandbox = Sandbox(name, "host", await backend.create(name, HOST_IMAGE, limits), {})
            for path in pathlib.Path(sys.argv[3]).glob("*.py"):
                async def content(path=path):
                    yield path.read_bytes()
                await sandbox.write_file(f"/tmp/programs/{path.name}", content())
            pair.append(sandbox)
        one, two = pair
        said = {"level": backend.level}
        for shared in ("/usr/bin/env", "/dev/null"):
            put = Command(["python3", "/tmp/programs/neighbour.py", "put", shared[1:4] + "-mark", shared], stdin=True)
            session, follower = await one.start_followed(put)
            await follower.next()
            look = await run(two, "/tmp/programs/neighbour.py", "look", shared[1:4] + "-mark", shared)
            said[shared] = [channel for channel, is_seen in json.loads(look).items() if is_seen]
            await session.signal(9)
        for name in sys.argv[5:]:
            said[name] = await run(one, f"/tmp/programs/{name}.py")
        print(json.dumps(said))
        await backend.close()

    asyncio.run(main())
""")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that other users may enter, unlike those of the tests."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user, one must be root")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_attacks_on_the_sandboxes_of_a_user_are_refused_as_well(open_to_all: Path) -> None:
    python = next((path for path in ("/usr/bin/python3", sys.executable) if _runs_for_others(path)), None)
    if python is None:
        pytest.skip("no Python that other users may run has the version that is needed")
    packages, programs, node = (open_to_all / name for name in ("packages", "programs", "node"))
    for package in ("sandbox_node", "sandboxes"):
        shutil.copytree(REPOSITORY / "hub_server" / package, packages / "hub_server" / package)
    (packages / "hub_server/__init__.py").touch()
    shutil.copytree(PROGRAMS, programs)
    node.mkdir()
    os.chown(node, SOMEBODY, SOMEBODY)
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-c", ATTACK, str(packages), str(node), str(programs), "9", *ATTACKING],
        user=SOMEBODY, group=SOMEBODY, extra_groups=[], capture_output=True, text=True, timeout=250, cwd="/",
        env={"PATH": os.defpath},
    )  # fmt: skip
    if "NotPossible" in done.stderr and "user namespace" in done.stderr:
        pytest.skip(f"users make no user namespaces here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["level"] == "restricted"
    assert said["/usr/bin/env"] == []
    assert set(said["/dev/null"]) <= SHARED
    tried = {name: how for file in ATTACKING for name, how in outcomes(said[file].encode()).items()}
    assert set(tried) == {name for _, name in attacks()}
    unrefused = {name: how for name, how in tried.items() if how[0] not in ("refused", "not here")}
    assert set(unrefused) == set(ALLOWED), unrefused


def _runs_for_others(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"],
        user=SOMEBODY, group=SOMEBODY, extra_groups=[], capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0
