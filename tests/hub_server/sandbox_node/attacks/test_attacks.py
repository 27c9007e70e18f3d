"""Every attack on the kernel, the surroundings, the agent and the network is tried and refused, and says so itself.

An attack that does not run, or that ends otherwise than by being refused, is a failure here. That the attacks are real
is shown beside it: unprotected, those that do no harm succeed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hub_server.sandbox_node.backends import Backend
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output
from hub_server.sandbox_node.specification import Command, Level
from tests.hub_server.sandbox_node.attacks.backends_here import ALLOWED, ATTACKING, PROGRAMS, attacks, outcomes
from tests.hub_server.sandbox_node.attacks.conftest import program

# On an unprotected machine these are refused too, by a kernel that was built without them.
SELDOM_BUILT_IN = {"ports_of_devices", "sockets_of_the_kernels_ciphers", "memory_that_the_kernel_does_not_see"}
in_one_loop = pytest.mark.asyncio(loop_scope="module")
Said = dict[tuple[str, str], tuple[str, str]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(sandbox: Sandbox, backend: Backend) -> AsyncIterator[Said]:
    """What all attacks said in one sandbox, while what they look for is there on the host."""
    found: Said = {}
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"prime-attacked-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        reachable = {"HOST_PORT": str(server.getsockname()[1]), "HOST_ABSTRACT": name}
        for file in ATTACKING:
            found |= {(file, attack): how for attack, how in (await _said_by(sandbox, file, reachable)).items()}
    yield found


async def _said_by(sandbox: Sandbox, file: str, env: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Run the attacks of a file; what was not said because the sandbox had ended is said to be so."""
    argv = ["python3", f"/tmp/programs/{file}.py"]
    _, follower = await sandbox.start_followed(Command(argv, env=env, timeout_s=60))
    heard, ended = {"stdout": b"", "stderr": b""}, None
    async for event in follower:
        if isinstance(event, Output):
            heard[event.stream] += event.data
        else:
            ended = event
    said = outcomes(heard["stdout"])
    if ended is None or ended.exit_code:
        # Where the command was ended with the sandbox, the latter is told a moment later.
        await asyncio.wait([sandbox.end], timeout=5)
    if not sandbox.end.done():
        assert ended is not None
        assert ended.exit_code == 0, heard["stderr"].decode()
    return {name: said.get(name, ("ended", "the sandbox")) for program, name in attacks() if program == file}


@in_one_loop
@pytest.mark.parametrize(("file", "attack"), attacks(), ids=lambda value: value)
async def test_an_attack_is_tried_and_refused(said: Said, backend: Backend, file: str, attack: str) -> None:
    outcome, how = said[file, attack]
    if outcome == "not here":
        pytest.skip(f"this machine has none: {how}")
    if (file, attack) in ALLOWED.get(backend.name, {}):
        assert outcome in ("through", "ended"), "the table of what is allowed says otherwise"
        return
    assert outcome == "refused", how


@in_one_loop
async def test_all_attacks_were_tried(said: Said) -> None:
    assert len(said) == len(attacks()) > 70
    assert [attack for attack, (outcome, _) in said.items() if outcome == "ended"] in (
        [],
        [("process_one", "every_signal")],
    )


@in_one_loop
async def test_the_sandbox_lives_after_all_attacks(said: Said, sandbox: Sandbox, backend: Backend) -> None:
    if ("process_one", "every_signal") in ALLOWED.get(backend.name, {}):
        pytest.skip(ALLOWED[backend.name]["process_one", "every_signal"])
    assert await sandbox.is_alive()
    assert (await program(sandbox, "probe")).exit_code == 0
    assert (await sandbox.run_python("print(6 * 7)", timeout_s=20)).stdout == b"42\n"
    assert backend.level >= Level.RESTRICTED


@in_one_loop
@pytest.mark.parametrize("backend", ["oci-crun"], indirect=True, scope="module")
async def test_a_container_runtime_keeps_the_kernel_closed_as_well(sandbox: Sandbox) -> None:
    """A sample for every run of the tests; all attacks are tried against all runtimes in the slow ones."""
    said = await _said_by(sandbox, "kernel", {})
    assert len(said) > 30
    assert {name: how for name, how in said.items() if how[0] not in ("refused", "not here")} == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may do all that the attacks try")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_the_same_attacks_succeed_where_nothing_protects() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"prime-unprotected-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        reachable = {**os.environ, "HOST_PORT": str(server.getsockname()[1]), "HOST_ABSTRACT": name}
        # Its own mounts, names and processes, so that nothing of it is left on this machine.
        fence = ["unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--propagation", "private", "--mount-proc"]
        harmless: dict[str, tuple[str, str]] = {}
        for file in ATTACKING:
            run = subprocess.run(
                [*fence, sys.executable, str(PROGRAMS / f"{file}.py"), "--control"],
                capture_output=True, env=reachable, timeout=60,
            )  # fmt: skip
            assert run.returncode == 0, run.stderr.decode()
            harmless |= outcomes(run.stdout)
    assert len(harmless) > 35
    refused = {attack: how for attack, (outcome, how) in harmless.items() if outcome != "through"}
    assert set(refused) <= SELDOM_BUILT_IN, refused
