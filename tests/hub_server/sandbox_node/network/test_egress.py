"""The way out of real sandboxes: programs inside, the agent, the proxy of the node, and a world on loopback."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.backends.process import ProcessBackend
from hub_server.sandbox_node.network.egress import PROXY_PORT, Egress
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Command, End, EndKind, Finished, Limits
from hub_server.sandboxes.egress import ALLOW_ALL, DENY_ALL, Policy
from tests.hub_server.sandbox_node.network.authority import Authority
from tests.hub_server.sandbox_node.network.world import ALLOWED, OTHER, World

Make = Callable[[], Awaitable[Sandbox]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    backend = ProcessBackend(tmp_path)
    made: list[Sandbox] = []

    async def one() -> Sandbox:
        confined = await backend.create(f"s{len(made)}", RootFilesystem("host:latest", None, {}), Limits())
        made.append(Sandbox(f"s{len(made)}", "host:latest", confined, {}))
        return made[-1]

    yield one
    for sandbox in made:
        await sandbox.destroy(End(EndKind.DELETED, "the test is over"))
    await backend.close()


async def shell(sandbox: Sandbox, command: str) -> Finished:
    return await sandbox.run(Command(["/bin/sh", "-c", command], timeout_s=20))


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


async def test_a_sandbox_has_no_way_out_until_it_is_given_one(make: Make, world: World) -> None:
    sandbox = await make()
    egress = Egress(sandbox, world.outside())
    assert egress.policy == DENY_ALL
    assert egress.environment() == {}
    await egress.set(DENY_ALL)
    assert (egress.generation, egress.applied_generation) == (1, 1)
    assert (await shell(sandbox, "echo $http_proxy$HTTPS_PROXY")).stdout == b"\n"


@needs_curl
async def test_curl_reaches_what_is_allowed_and_is_told_why_it_does_not_reach_the_rest(
    make: Make, world: World, authority: Authority
) -> None:
    await world.serve_http(ALLOWED, 80)
    await world.serve_http(ALLOWED, 443, tls=authority.server_context("allowed.test"))
    await world.serve_http(OTHER, 443, tls=authority.server_context("other.test"))
    sandbox = await make()
    egress = Egress(sandbox, world.outside())
    await egress.set(Policy.parse(["allowed.test"], None))
    curl = f"curl -sS --max-time 10 --cacert {authority.file}"
    assert (await shell(sandbox, f"{curl} http://allowed.test/")).stdout == b"93.184.216.34 got ''\n"
    assert (await shell(sandbox, f"{curl} -d body https://allowed.test/")).stdout == b"93.184.216.34 got 'body'\n"
    refused = await shell(sandbox, f"{curl} https://other.test/")
    assert refused.exit_code == 56
    assert b"403" in refused.stderr
    plain = await shell(sandbox, f"{curl} http://other.test/")
    assert plain.stdout == b"other.test:80 is not in the sandbox's allowlist\n"
    fronted = await shell(sandbox, f"{curl} -k --connect-to other.test:443:allowed.test:443 https://other.test/")
    assert fronted.exit_code == 35
    assert b"alert" in fronted.stderr
    assert egress.counts.refused == 3


async def test_python_inside_reaches_what_is_allowed_and_learns_why_not(
    make: Make, world: World, authority: Authority
) -> None:
    await world.serve_http(ALLOWED, 443, tls=authority.server_context("allowed.test"))
    sandbox = await make()
    await Egress(sandbox, world.outside()).set(Policy.parse(["allowed.test"], None))
    code = f"""
import ssl, urllib.request
context = ssl.create_default_context(cafile={str(authority.file)!r})
print(urllib.request.urlopen("https://allowed.test/", context=context).read())
try:
    urllib.request.urlopen("https://other.test/", context=context)
except OSError as error:
    print(error)
"""
    finished = await sandbox.run(Command(["python3", "-c", code], timeout_s=20))
    assert finished.stdout == (
        b"b\"93.184.216.34 got ''\\n\"\n"
        b"<urlopen error Tunnel connection failed: 403 other.test:443 is not in the sandbox's allowlist>\n"
    )


@needs_curl
async def test_a_policy_that_changes_holds_at_once_and_cuts_what_runs(make: Make, world: World) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    await world.serve(ALLOWED, 80, endless)
    sandbox = await make()
    egress = Egress(sandbox, world.outside())
    await egress.set(ALLOW_ALL)
    running = await sandbox.start(Command(["/bin/sh", "-c", "curl -sN http://allowed.test/; echo ended"]))
    events = running.events()
    assert b"x" in (await anext(events)).data
    await asyncio.wait_for(egress.set(DENY_ALL), 2)
    assert egress.applied_generation == egress.generation == 2
    written = b""
    async with asyncio.timeout(5):
        async for event in events:
            written += getattr(event, "data", b"")
    assert written.endswith(b"ended\n")
    after = await shell(sandbox, "curl -sS --max-time 5 http://allowed.test/")
    assert after.stdout == b"allowed.test:80 is not in the sandbox's allowlist\n"


async def test_an_answer_larger_than_all_buffers_arrives_whole(make: Make, world: World) -> None:
    size = 3_000_000
    await world.serve_http(ALLOWED, 80, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
    sandbox = await make()
    await Egress(sandbox, world.outside()).set(ALLOW_ALL)
    code = """
import os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
client = socket.create_connection((proxy.hostname, proxy.port))
client.sendall(b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n")
client.shutdown(socket.SHUT_WR)  # the way back stays open
import time; time.sleep(0.2)
print(sum(map(len, iter(lambda: client.recv(65536), b""))) > 3_000_000)
"""
    finished = await sandbox.run(Command(["python3", "-c", code], timeout_s=20))
    assert finished.stdout == b"True\n"


async def test_a_port_that_is_taken_inside_does_not_keep_the_proxy_out(make: Make, world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    one, two = Egress(await make(), world.outside()), Egress(sandbox := await make(), world.outside())
    await one.set(ALLOW_ALL)
    await two.set(ALLOW_ALL)
    assert one.environment()["http_proxy"] != two.environment()["http_proxy"]
    assert f":{PROXY_PORT}" not in two.environment()["http_proxy"]
    finished = await shell(
        sandbox, "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://allowed.test\").status)'"
    )
    assert finished.stdout == b"200\n"


async def test_the_end_of_a_sandbox_ends_its_connections(make: Make, world: World) -> None:
    over = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        over.set()

    await world.serve(ALLOWED, 9, wait)
    sandbox = await make()
    egress = Egress(sandbox, world.outside())
    await egress.set(ALLOW_ALL)
    code = """
import os, socket, time, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
client = socket.create_connection((proxy.hostname, proxy.port))
client.sendall(b"CONNECT allowed.test:9 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(client.recv(100), flush=True)
time.sleep(60)
"""
    running = await sandbox.start(Command(["python3", "-c", code]))
    async for event in running.events():
        assert b"200" in event.data
        break
    await sandbox.destroy(End(EndKind.DELETED, "gone"))
    await asyncio.wait_for(over.wait(), 5)


async def test_programs_that_open_connections_without_end_wait_and_harm_nobody(make: Make, world: World) -> None:
    await world.serve_echo(ALLOWED, 7)
    greedy, modest = await make(), await make()
    for sandbox in (greedy, modest):
        await Egress(sandbox, world.outside()).set(ALLOW_ALL)
    code = """
import os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
def tunnel(timeout=None):
    client = socket.create_connection((proxy.hostname, proxy.port))
    client.settimeout(timeout)
    client.sendall(b"CONNECT allowed.test:7 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    return client if b"200" in client.recv(100) else None
clients = [tunnel() for _ in range(64)]
try:
    tunnel(0.5)
except TimeoutError:
    print(all(clients), flush=True)
for client in clients[:10]:
    client.close()
print(tunnel() is not None, flush=True)
"""
    finished = await greedy.run(Command(["python3", "-c", code], timeout_s=30))
    assert finished.stdout == b"True\nTrue\n", finished.stderr
    one = code.partition("clients = ")[0] + "print(tunnel() is not None)"
    assert (await modest.run(Command(["python3", "-c", one], timeout_s=30))).stdout == b"True\n"
