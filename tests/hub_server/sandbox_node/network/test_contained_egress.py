"""The way out of contained sandboxes: what is allowed is reached through the proxy, and nothing past it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend
from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.network.egress import Egress
from hub_server.sandbox_node.network.proxy import Outside
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, End, EndKind, Finished, Limits
from hub_server.sandboxes.egress import ALLOW_ALL, Policy
from tests.hub_server.sandbox_node.network.authority import Authority
from tests.hub_server.sandbox_node.network.world import ALLOWED, OTHER, World

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

# Tries to reach somebody without the proxy, and says how each attempt ended.
PAST_THE_PROXY = """
import json, os, socket, sys
def attempt(how):
    try:
        return "reached: %r" % (how(),)
    except OSError as error:
        return type(error).__name__ + " " + os.strerror(error.errno or 0)
def tcp(family, address):
    def how():
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(3)
            client.connect(address)
            return client.recv(10)
    return how
def udp(address):
    def how():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(3)
            client.connect(address)
            client.send(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4leak\\4test\\0\\0\\1\\0\\1")
            return client.recv(10)
    return how
port, own, abstract = int(sys.argv[1]), sys.argv[2], sys.argv[3]
print(json.dumps({
    "public": attempt(tcp(socket.AF_INET, ("93.184.216.34", 80))),
    "public ipv6": attempt(tcp(socket.AF_INET6, ("2001:4860:4860::8888", 443))),
    "loopback of the host": attempt(tcp(socket.AF_INET, ("127.0.0.1", port))),
    "address of the host": attempt(tcp(socket.AF_INET, (own, port))),
    "metadata": attempt(tcp(socket.AF_INET, ("169.254.169.254", 80))),
    "name server": attempt(udp(("8.8.8.8", 53))),
    "name server of the host": attempt(udp(("127.0.0.53", 53))),
    "names": attempt(lambda: socket.getaddrinfo("allowed.test", 80)),
    "abstract socket": attempt(tcp(socket.AF_UNIX, "\\0" + abstract)),
}))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    try:
        backend = await BwrapBackend.open(tmp_path_factory.mktemp("backend"))
    except NotPossible as problem:
        pytest.skip(f"bubblewrap makes no sandbox on this host: {problem}")
    confined = await backend.create("one", HOST_IMAGE, Limits(memory_bytes=256 * MEBIBYTE))
    made = Sandbox("one", "host", confined, {})
    yield made
    await made.destroy(End(EndKind.DELETED, "the tests are over"))
    await backend.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    made = World()
    made.names = {"allowed.test": [ALLOWED], "other.test": [OTHER], "inner.test": ["127.0.0.1"]}
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def egress(sandbox: Sandbox, world: World) -> Egress:
    return Egress(sandbox, world.outside())


def own_address() -> str:
    """Return the address of this machine towards others, or that of loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


async def shell(sandbox: Sandbox, command: str) -> Finished:
    return await sandbox.run(Command(["/bin/sh", "-c", command], timeout_s=30))


async def write(sandbox: Sandbox, path: str, content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    await sandbox.write_file(path, chunks())


async def attempts_past_the_proxy(sandbox: Sandbox) -> dict[str, str]:
    """Return how each attempt to reach somebody without the proxy ended; all of them are there to be reached."""
    listening = [socket.create_server(("0.0.0.0", 0)), socket.socket(socket.AF_UNIX)]
    port, name = listening[0].getsockname()[1], f"prime-test-{listening[0].fileno()}-{id(sandbox)}"
    listening[1].bind("\0" + name)
    listening[1].listen()
    try:
        finished = await sandbox.run(
            Command(["python3", "-c", PAST_THE_PROXY, str(port), own_address(), name], timeout_s=60)
        )
        assert finished.exit_code == 0, finished.stderr
        ended: dict[str, str] = json.loads(finished.stdout)
        return ended
    finally:
        for one in listening:
            one.close()


async def test_nobody_is_reached_past_the_proxy_whatever_the_policy(sandbox: Sandbox, egress: Egress) -> None:
    expected = {
        "public": "OSError Network is unreachable", "public ipv6": "OSError Network is unreachable",
        "loopback of the host": "ConnectionRefusedError Connection refused",
        "address of the host": "OSError Network is unreachable", "metadata": "OSError Network is unreachable",
        "name server": "OSError Network is unreachable",
        "name server of the host": "ConnectionRefusedError Connection refused",
        "abstract socket": "ConnectionRefusedError Connection refused",
    }  # fmt: skip
    if own_address() == "127.0.0.1":
        expected["address of the host"] = expected["loopback of the host"]
    assert (await shell(sandbox, "echo $http_proxy")).stdout == b"\n"
    for _ in range(2):
        ended = await attempts_past_the_proxy(sandbox)
        assert ended.pop("names").startswith("gaierror")
        assert ended == expected
        await egress.set(ALLOW_ALL)


async def test_tools_reach_what_is_allowed_and_are_told_about_the_rest(
    sandbox: Sandbox, egress: Egress, world: World, authority: Authority
) -> None:
    await world.serve_http(ALLOWED, 80)
    await world.serve_http(ALLOWED, 443, tls=authority.server_context("allowed.test"))
    await write(sandbox, "/tmp/ca.pem", authority.file.read_bytes())
    await egress.set(Policy.parse(["allowed.test"], None))
    code = """
import ssl, urllib.error, urllib.request
context = ssl.create_default_context(cafile="/tmp/ca.pem")
for url in ("http://allowed.test/", "https://allowed.test/", "https://other.test/", "http://169.254.169.254/"):
    try:
        print(urllib.request.urlopen(url, context=context).status)
    except OSError as error:
        print(error)
"""
    finished = await sandbox.run(Command(["python3", "-c", code], timeout_s=30))
    assert finished.stdout.decode().splitlines() == [
        "200",
        "200",
        "<urlopen error Tunnel connection failed: 403 other.test:443 is not in the sandbox's allowlist>",
        "HTTP Error 403: 169.254.169.254:80 is not in the sandbox's allowlist",
    ]
    if (await shell(sandbox, "command -v curl")).exit_code == 0:
        curl = await shell(sandbox, "curl -sS --cacert /tmp/ca.pem https://allowed.test/")
        assert curl.stdout == b"93.184.216.34 got ''\n", curl.stderr


async def test_with_everything_allowed_the_host_and_its_networks_stay_out_of_reach(
    sandbox: Sandbox, egress: Egress
) -> None:
    """Through the real resolver and the real connections of a node."""
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        real = Egress(sandbox, Outside())
        await real.set(ALLOW_ALL)
        hosts = ["127.0.0.1", "127.1", "0.0.0.0", "0x7f000001", "2130706433", "localhost", "169.254.169.254"]
        hosts += ["[::1]", "[::ffff:127.0.0.1]", own_address()]
        code = (
            "import sys, urllib.request\n"
            "urllib.request.getproxies = lambda: {'http': 'http://127.0.0.1:3128'}\n"
            "urllib.request.proxy_bypass = lambda host: False\n"
            "for url in sys.argv[1:]:\n"
            "    try:\n"
            "        print('reached', urllib.request.urlopen(url, timeout=5))\n"
            "    except OSError as error:\n"
            "        print(getattr(error, 'code', error))\n"
        )
        urls = [f"http://{host}:{port}/" for host in hosts]
        finished = await sandbox.run(Command(["python3", "-c", code, *urls], timeout_s=60))
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert finished.stdout.decode().splitlines() == ["403"] * len(hosts), finished.stderr


async def test_a_policy_that_changes_cuts_a_download_of_a_contained_sandbox(sandbox: Sandbox, world: World) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()

    await world.serve(OTHER, 80, endless)
    egress = Egress(sandbox, world.outside())
    await egress.set(ALLOW_ALL)
    code = (
        "import urllib.request\n"
        "answer, size = urllib.request.urlopen('http://other.test/'), 0\n"
        "print('begun', flush=True)\n"
        "while data := answer.read(65536):\n"
        "    size += len(data)\n"
        "print('ended', size > 0)\n"
    )
    session, follower = await sandbox.start_followed(Command(["python3", "-c", code]))
    heard = b""
    with follower:
        async with asyncio.timeout(30):
            async for event in follower:
                if data := getattr(event, "data", b""):
                    if not heard:
                        await asyncio.sleep(0.2)
                        await asyncio.wait_for(egress.set(Policy.parse(["allowed.test"], None)), 3)
                    heard += data
    assert heard.startswith(b"begun\n")
    assert session.ended is not None
    assert egress.counts.bytes_in > 1_000_000
