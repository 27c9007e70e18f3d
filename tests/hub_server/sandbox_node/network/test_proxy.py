"""The filtering proxy, over streams in memory and real servers on loopback that stand for public ones."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from hub_server.sandbox_node.network import dialer
from hub_server.sandbox_node.network.pace import Pace
from hub_server.sandbox_node.network.proxy import FilteringProxy
from hub_server.sandboxes.egress import ALLOW_ALL, DENY_ALL, Policy
from tests.hub_server.sandbox_node.network.authority import Authority
from tests.hub_server.sandbox_node.network.hellos import hello_of, made_hello, server_names
from tests.hub_server.sandbox_node.network.world import ALLOWED, OTHER, Pipe, World

DENIED = r"(?i)alert access denied"
HIDDEN = made_hello(server_names(b"allowed.test"), (0xFE0D, b"hidden"))


async def ask(proxy: FilteringProxy, request: bytes) -> bytes:
    """Return all that the proxy answers on one connection, whose client sends no more than this."""
    client, server = Pipe.pair()
    serving = asyncio.ensure_future(proxy.serve(server))
    for at in range(0, len(request), 16_384):
        await client.write(request[at : at + 16_384])
    await client.close_writing()
    answer = await asyncio.wait_for(client.read_all(), 10)
    await serving
    return answer


def get(url: str, *fields: str) -> bytes:
    host = url.split("/")[2]
    return "\r\n".join([f"GET {url} HTTP/1.1", f"Host: {host}", "Connection: close", *fields, "", ""]).encode()


def allow(*entries: str) -> Policy:
    return Policy.parse(list(entries), None)


def deny(*entries: str) -> Policy:
    return Policy.parse(None, list(entries))


class Tunnel:
    """The client's side of a tunnel that was opened."""

    def __init__(self, client: Pipe, serving: asyncio.Task[None], status: bytes) -> None:
        self.client, self.serving, self.status = client, serving, status

    @property
    def is_open(self) -> bool:
        return not self.serving.done()


@asynccontextmanager
async def tunnel(proxy: FilteringProxy, target: str) -> AsyncIterator[Tunnel]:
    client, server = Pipe.pair()
    serving = asyncio.ensure_future(proxy.serve(server))
    await client.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = await asyncio.wait_for(client.read_until(b"\r\n\r\n"), 5)
    try:
        yield Tunnel(client, serving, answer.split(b"\r\n")[0])
    finally:
        client.close()
        await asyncio.wait_for(serving, 5)


async def tls_request(client: Pipe, context: ssl.SSLContext, server_name: str) -> bytes:
    """Make a TLS connection inside a tunnel, and return what an echo server there says to `hello`."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=server_name)

    async def step(action) -> bytes | None:
        while True:
            try:
                return action()
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    await client.write(outgoing.read())
                data = await client.read()
                if not data:
                    raise ConnectionResetError from None
                incoming.write(data)
            finally:
                if outgoing.pending:
                    await client.write(outgoing.read())

    await step(tls.do_handshake)
    await step(lambda: tls.write(b"hello"))
    return await step(lambda: tls.read(100)) or b""


def insecure() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# Plain requests.


async def test_a_request_to_an_allowed_host_is_answered_and_to_another_refused(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    await world.serve_http(OTHER, 80)
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    answer = await ask(proxy, get("http://allowed.test/path?query"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"93.184.216.34 got ''\n")
    refused = await ask(proxy, get("http://other.test/"))
    assert refused.startswith(b"HTTP/1.1 403 other.test:80 is not in the sandbox's allowlist\r\n")
    assert refused.endswith(b"\r\n\r\nother.test:80 is not in the sandbox's allowlist\n")
    assert world.dialled == [(ALLOWED, 80)]
    assert (proxy.counts.connections, proxy.counts.refused) == (2, 1)


async def test_a_name_that_no_entry_allows_is_never_resolved(world: World) -> None:
    for policy in (DENY_ALL, allow("allowed.test", "0.0.0.0/0"), deny("*.leak.test")):
        proxy = FilteringProxy(policy, world.outside())
        assert b"403" in await ask(proxy, get("http://secret-data.leak.test/"))
    assert world.asked == []


async def test_a_name_without_an_address_is_a_bad_gateway_and_a_silent_name_server_a_timeout(world: World) -> None:
    proxy = FilteringProxy(ALLOW_ALL, world.outside(resolve_timeout_s=0.2))
    assert (await ask(proxy, get("http://nowhere.test/"))).startswith(b"HTTP/1.1 502 nowhere.test has no IPv4 address")
    assert (await ask(proxy, get("http://silent.test/"))).startswith(b"HTTP/1.1 504 no name server answers")
    assert (await ask(proxy, get("http://allowed.test/"))).startswith(b"HTTP/1.1 502 allowed.test:80 does not answer")


async def test_what_goes_on_is_written_anew_without_fields_of_one_hop(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    fields = ["Proxy-Authorization: Basic c2VjcmV0", "Proxy-Connection: keep-alive", "Connection: x-hop", "X-Hop: 1",
              "X-End: 2", "TE: trailers", "Upgrade: h2c"]  # fmt: skip
    await ask(proxy, get("http://ALLOWED.test:80/a?b", *fields))
    head = world.received[0].lower()
    assert head.startswith(b"get /a?b http/1.1\r\nhost: allowed.test\r\n")
    assert b"x-end: 2\r\n" in head
    assert not any(name in head for name in (b"proxy-", b"x-hop", b"te:", b"upgrade"))


async def test_bodies_go_both_ways_and_connections_are_kept(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    post = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\n\r\nbody"
    chunked = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    refused = b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"
    answer = await ask(proxy, post + refused + chunked)
    assert re.findall(rb"HTTP/1.1 ([^\r]*)", answer) == [
        b"200 OK",
        b"403 other.test:80 is not in the sandbox's allowlist",
        b"200 OK",
    ]
    assert b"got 'body'" in answer
    assert b"transfer-encoding: chunked" in world.received[1].lower()
    assert proxy.counts.bytes_out == 4
    assert proxy.counts.bytes_in == 2 * len("93.184.216.34 got ''\n") + 4


async def test_a_client_that_waits_for_100_continue_gets_it(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    client, server = Pipe.pair()
    serving = asyncio.ensure_future(FilteringProxy(ALLOW_ALL, world.outside()).serve(server))
    await client.write(
        b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    await client.write(b"body")
    await client.close_writing()
    assert b"got 'body'" in await client.read_all()
    await serving


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_answers_of_every_framing_arrive(world: World, answer: bytes) -> None:
    await world.serve_http(ALLOWED, 80, answer)
    received = await ask(FilteringProxy(ALLOW_ALL, world.outside()), get("http://allowed.test/"))
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"hello" in received


async def test_an_answer_that_is_none_is_a_bad_gateway_and_one_cut_short_ends_the_connection(world: World) -> None:
    await world.serve_http(ALLOWED, 80, b"SSH-2.0-x\r\n\r\n")
    await world.serve_http(OTHER, 80, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    assert (await ask(proxy, get("http://allowed.test/"))).startswith(b"HTTP/1.1 502 ")
    assert (await ask(proxy, get("http://other.test/"))).endswith(b"\r\n\r\nhalf")


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "GET ftp://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "GET http://user:pw@allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: other.test\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\n\r\n",
        "GET http://allowed.test:port/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "PUT http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nbody",
        "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"
        "\r\n\r\n0\r\n\r\n",
        "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET http://allowed.test/ HTTP/1.1\r\nHost : allowed.test\r\n\r\n",
        "GET http://allowed.test/\x01 HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "nonsense\r\n\r\n",
        "\x16\x03\x01\x02\x00\r\n\r\n",
        "CONNECT allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nhello",
        "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nX: " + "x" * 100_000 + "\r\n\r\n",
    ],
)
async def test_what_two_readers_could_read_differently_is_refused_and_reaches_nobody(
    world: World, request_text: str
) -> None:
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    answer = await ask(proxy, request_text.encode("latin-1"))
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1") == 1
    assert world.dialled == []


async def test_a_request_hidden_in_a_body_is_no_request(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    hidden = get("http://other.test/")
    post = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    answer = await ask(FilteringProxy(ALLOW_ALL, world.outside()), post + hidden)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert world.dialled == [(ALLOWED, 80)]


# Addresses.


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0177.1", "0.0.0.0", "10.0.0.1", "169.254.169.254",
     "192.168.0.1", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
async def test_no_policy_lets_addresses_be_reached_that_are_not_public(world: World, host: str) -> None:
    for policy in (ALLOW_ALL, allow("0.0.0.0/0")):
        proxy = FilteringProxy(policy, world.outside())
        assert (await ask(proxy, get(f"http://{host}/"))).startswith(b"HTTP/1.1 403 ")
        async with tunnel(proxy, f"{host}:443") as opened:
            assert opened.status.startswith(b"HTTP/1.1 403 ")
    assert world.dialled == []


@pytest.mark.parametrize(
    "host", ["[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2001:db8::1]"]
)
async def test_addresses_of_ipv6_are_refused(world: World, host: str) -> None:
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    answer = await ask(proxy, get(f"http://{host}/"))
    assert answer.startswith(b"HTTP/1.1 403 sandboxes reach hosts over IPv4 only")
    async with tunnel(proxy, f"{host}:443") as opened:
        assert opened.status.startswith(b"HTTP/1.1 403 ")


async def test_a_name_for_a_private_address_is_refused_without_telling_the_address(world: World) -> None:
    world.names["allowed.test"] = ["10.11.12.13"]
    for policy in (ALLOW_ALL, allow("allowed.test")):
        answer = await ask(FilteringProxy(policy, world.outside()), get("http://allowed.test/"))
        assert answer.startswith(b"HTTP/1.1 403 allowed.test:80 is not public (a private network)")
        assert b"10.11" not in answer
    assert world.dialled == []


async def test_a_name_that_changes_its_address_is_connected_to_only_as_it_was_checked(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    answers = [[ALLOWED], ["127.0.0.1"], ["127.0.0.1", ALLOWED]]

    async def rebinding(host: str) -> list[IPv4Address]:
        return [IPv4Address(address) for address in answers.pop(0)]

    outside = world.outside()
    proxy = FilteringProxy(allow("allowed.test"), replace(outside, resolve=rebinding))
    statuses = [(await ask(proxy, get("http://allowed.test/")))[9:12] for _ in range(3)]
    assert statuses == [b"200", b"403", b"200"]
    assert world.dialled == [(ALLOWED, 80), (ALLOWED, 80)]


async def test_the_operator_may_let_a_private_network_be_reached(world: World) -> None:
    await world.serve_http("10.11.12.13", 80)
    proxy = FilteringProxy(ALLOW_ALL, world.outside(private=["10.11.0.0/16"]))
    assert b"200 OK" in await ask(proxy, get("http://10.11.12.13/"))
    assert b"403" in await ask(proxy, get("http://10.12.12.13/"))


async def test_an_address_of_the_node_itself_is_refused_though_it_is_public(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_server.sandboxes.egress._NOT_PUBLIC", ())
    answer = await ask(FilteringProxy(ALLOW_ALL, world.outside()), get("http://127.0.0.1/"))
    assert answer.startswith(b"HTTP/1.1 403 127.0.0.1:80 is not public (an address of the node itself)")


async def test_a_redirect_to_a_private_address_leads_nowhere(world: World) -> None:
    await world.serve_http(
        ALLOWED, 80, b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"
    )
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    answer = await ask(proxy, get("http://allowed.test/"))
    assert b"302 Found" in answer
    assert b"ocation: http://127.0.0.1/" in answer
    assert (await ask(proxy, get("http://127.0.0.1/"))).startswith(b"HTTP/1.1 403 ")


async def test_a_denylist_holds_for_the_addresses_of_names_too(world: World) -> None:
    await world.serve_http(OTHER, 80)
    world.names["alias.test"] = [ALLOWED]
    proxy = FilteringProxy(deny("denied.test", "93.184.216.34"), world.outside())
    assert b"403" in await ask(proxy, get("http://denied.test/"))
    assert b"403" in await ask(proxy, get("http://alias.test/"))
    assert b"200 OK" in await ask(proxy, get("http://other.test/"))


# Tunnels.


async def test_a_tunnel_to_an_allowed_host_carries_tls_that_names_it(world: World, authority: Authority) -> None:
    await world.serve_echo(ALLOWED, 443, authority.server_context("allowed.test"))
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    async with tunnel(proxy, "allowed.test:443") as opened:
        assert opened.status == b"HTTP/1.1 200 Connection established"
        assert await tls_request(opened.client, authority.client_context(), "allowed.test") == b"hello"
    assert proxy.counts.bytes_out > 200
    async with tunnel(proxy, "other.test:443") as opened:
        assert opened.status == b"HTTP/1.1 403 other.test:443 is not in the sandbox's allowlist"


async def test_a_tunnel_whose_client_names_another_host_is_closed_with_an_alert(
    world: World, authority: Authority
) -> None:
    heard = []
    await world.serve(ALLOWED, 443, lambda reader, _: _note(reader, heard))
    proxy = FilteringProxy(allow("allowed.test", "*.wild.test"), world.outside())
    async with tunnel(proxy, "allowed.test:443") as opened:
        with pytest.raises(ssl.SSLError, match=DENIED):
            await tls_request(opened.client, insecure(), "other.test")
        await asyncio.wait_for(opened.serving, 5)
    assert heard == [b""]
    assert proxy.counts.refused == 1


async def _note(reader: asyncio.StreamReader, heard: list[bytes]) -> None:
    heard.append(await reader.read(1000))


@pytest.mark.parametrize(
    "beginning",
    [b"SSH-2.0-client\r\n", b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", hello_of(None), HIDDEN, b"\x16\x03\x01\x00"],
)
async def test_what_is_not_tls_for_the_host_goes_nowhere_in_a_tunnel_by_name(world: World, beginning: bytes) -> None:
    heard: list[bytes] = []
    await world.serve(ALLOWED, 443, lambda reader, _: _note(reader, heard))
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    async with tunnel(proxy, "allowed.test:443") as opened:
        await opened.client.write(beginning)
        await opened.client.close_writing()
        await asyncio.wait_for(opened.serving, 5)
        assert (await opened.client.read_all()) == bytes.fromhex("15030300020231")
    assert heard == [b""]


async def test_a_tunnel_to_an_address_or_with_everything_allowed_carries_anything(world: World) -> None:
    await world.serve_echo(ALLOWED, 22)
    for policy, target in ((ALLOW_ALL, "allowed.test:22"), (allow("93.184.216.0/24:22"), f"{ALLOWED}:22")):
        async with tunnel(FilteringProxy(policy, world.outside()), target) as opened:
            await opened.client.write(b"SSH-2.0-client\r\n")
            assert await opened.client.read() == b"SSH-2.0-client\r\n"


async def test_bytes_that_come_with_the_request_for_a_tunnel_are_not_lost(world: World) -> None:
    await world.serve_echo(ALLOWED, 22)
    request = f"CONNECT {ALLOWED}:22 HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\nearly".encode()
    assert (await ask(FilteringProxy(ALLOW_ALL, world.outside()), request)).endswith(b"\r\n\r\nearly")


async def test_a_denylist_of_names_is_held_against_what_a_tls_client_names(world: World, authority: Authority) -> None:
    await world.serve_echo(ALLOWED, 443, authority.server_context("allowed.test"))
    proxy = FilteringProxy(deny("denied.test"), world.outside())
    async with tunnel(proxy, f"{ALLOWED}:443") as opened:
        with pytest.raises(ssl.SSLError, match=DENIED):
            await tls_request(opened.client, insecure(), "denied.test")
    async with tunnel(proxy, f"{ALLOWED}:443") as opened:
        assert await tls_request(opened.client, insecure(), "allowed.test") == b"hello"


async def test_a_tunnel_to_port_80_of_a_name_is_held_to_http_for_that_name(world: World) -> None:
    await world.serve_http(ALLOWED, 80)
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    async with tunnel(proxy, "allowed.test:80") as opened:
        await opened.client.write(b"GET /inside HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
        assert (await opened.client.read_until(b"got ''\n")).startswith(b"HTTP/1.1 200 OK")
        await opened.client.write(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
        refused = await opened.client.read_until(b"\n")
        assert refused.startswith(b"HTTP/1.1 403 the tunnel is to allowed.test:80, and the request inside it")
    assert len(world.received) == 1
    assert world.received[0].startswith(b"GET /inside ")


# Policies that change.


async def test_a_new_policy_cuts_what_it_forbids_before_it_counts_as_applied(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    await world.serve_echo(OTHER, 443)
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    async with tunnel(proxy, f"{ALLOWED}:443") as stays, tunnel(proxy, f"{OTHER}:443") as goes:
        for opened in (stays, goes):
            await opened.client.write(b"here")
            assert await opened.client.read() == b"here"
        await asyncio.wait_for(proxy.apply(allow(ALLOWED)), 2)
        assert goes.client.other.is_closed
        assert await goes.client.read() == b""
        await stays.client.write(b"still here")
        assert await stays.client.read() == b"still here"
        async with tunnel(proxy, f"{OTHER}:443") as again:
            assert again.status.startswith(b"HTTP/1.1 403")


async def test_a_tunnel_that_nobody_watched_is_cut_when_names_begin_to_count(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    for policy in (allow("allowed.test"), deny("denied.test")):
        await proxy.apply(ALLOW_ALL)
        async with tunnel(proxy, "allowed.test:443") as opened:
            await proxy.apply(policy)
            assert await opened.client.read() == b""


async def test_a_tunnel_that_is_held_to_its_name_lives_through_policies_that_allow_it(
    world: World, authority: Authority
) -> None:
    await world.serve_echo(ALLOWED, 443, authority.server_context("allowed.test"))
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    async with tunnel(proxy, "allowed.test:443") as opened:
        await tls_request(opened.client, authority.client_context(), "allowed.test")
        for policy in (allow("*.test"), deny("other.test"), ALLOW_ALL):
            await proxy.apply(policy)
            assert opened.is_open
        await proxy.apply(deny("allowed.test"))
        assert await opened.client.read() == b""


async def test_a_policy_that_changes_while_a_connection_is_being_made_holds_for_it(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    outside = world.outside()
    dialling = asyncio.Event()

    async def slow_dial(address: IPv4Address, port: int, timeout_s: float):
        dialling.set()
        await asyncio.sleep(0.05)
        return await world.dial(address, port, timeout_s)

    proxy = FilteringProxy(ALLOW_ALL, replace(outside, dial=slow_dial))
    answer = asyncio.ensure_future(ask(proxy, f"CONNECT {ALLOWED}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode()))
    await dialling.wait()
    await proxy.apply(DENY_ALL)
    assert (await answer).startswith(b"HTTP/1.1 403 ")


async def test_a_download_is_cut_by_a_new_policy_too(world: World) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0.005)

    await world.serve(ALLOWED, 80, endless)
    proxy = FilteringProxy(allow("allowed.test"), world.outside())
    client, server = Pipe.pair()
    serving = asyncio.ensure_future(proxy.serve(server))
    await client.write(get("http://allowed.test/"))
    assert b"200 OK" in await client.read()
    await asyncio.wait_for(proxy.apply(DENY_ALL), 2)
    await asyncio.wait_for(serving, 2)
    assert not (await client.read_all()).endswith(b"0\r\n\r\n")


# Limits.


async def test_more_connections_than_allowed_are_refused_and_the_others_go_on(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    proxy = FilteringProxy(ALLOW_ALL, world.outside(connections=2))
    async with tunnel(proxy, f"{ALLOWED}:443") as one, tunnel(proxy, f"{ALLOWED}:443"):
        assert (await ask(proxy, get("http://allowed.test/"))).startswith(b"HTTP/1.1 503 the sandbox has 2 connections")
        await one.client.write(b"on")
        assert await one.client.read() == b"on"
    async with tunnel(proxy, f"{ALLOWED}:443") as again:
        assert again.status.startswith(b"HTTP/1.1 200")


def test_a_sandbox_that_asks_without_end_waits_longer_and_longer() -> None:
    now = [0.0]
    pace = Pace(10, 3, lambda: now[0])
    assert [round(pace.wait_s(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    now[0] = 0.5
    assert [round(pace.wait_s(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    now[0] = 100
    assert [pace.wait_s() for _ in range(3)] == [0, 0, 0]


async def test_requests_of_one_connection_are_paced_too(world: World) -> None:
    proxy = FilteringProxy(DENY_ALL, world.outside(requests_per_second=100, requests_at_once=2))
    began = asyncio.get_running_loop().time()
    answer = await ask(proxy, b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n" * 12)
    assert answer.count(b"HTTP/1.1 403") == 12
    assert asyncio.get_running_loop().time() - began > 0.09


async def test_bytes_are_paced_in_tunnels_and_in_bodies(world: World) -> None:
    await world.serve_echo(ALLOWED, 7)
    await world.serve_http(ALLOWED, 80, b"HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n" + b"x" * 150_000)
    clock = asyncio.get_running_loop().time
    proxy = FilteringProxy(ALLOW_ALL, world.outside(bytes_per_second=1_000_000))
    async with tunnel(proxy, "allowed.test:7") as opened:
        began = clock()
        for _ in range(12):
            await opened.client.write(b"x" * 50_000)
            heard = 0
            while heard < 50_000 and (data := await opened.client.read()):
                heard += len(data)
            assert heard == 50_000
    assert clock() - began > 0.15  # 1.2 MB both ways, of which 1 MB at once
    began = clock()
    assert len(await ask(proxy, get("http://allowed.test/"))) > 150_000
    assert clock() - began > 0.1


async def test_names_that_nobody_answers_for_hold_up_no_others_but_of_the_same_sandbox(world: World) -> None:
    release = asyncio.Event()

    async def resolve(host: str) -> list[IPv4Address]:
        await release.wait()
        return [IPv4Address(ALLOWED)]

    await world.serve_http(ALLOWED, 80)
    outside = replace(world.outside(names_at_once=1, resolve_timeout_s=0.05), resolve=resolve)
    proxy = FilteringProxy(ALLOW_ALL, outside)
    for _ in range(3):
        assert (await ask(proxy, get("http://allowed.test/"))).startswith(b"HTTP/1.1 504 ")
    release.set()
    assert (await ask(proxy, get("http://allowed.test/"))).startswith(b"HTTP/1.1 200 ")


async def test_the_resolver_of_the_node_knows_names_and_says_when_there_is_none() -> None:
    assert await dialer.resolve("127.0.0.1") == [IPv4Address("127.0.0.1")]
    with pytest.raises(dialer.Unresolved, match=r"no-such-name\.invalid has no IPv4 address"):
        await dialer.resolve("no-such-name.invalid")


async def test_silent_clients_and_silent_tunnels_end(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    proxy = FilteringProxy(ALLOW_ALL, world.outside(head_timeout_s=0.05, idle_timeout_s=0.05))
    _, server = Pipe.pair()
    await asyncio.wait_for(proxy.serve(server), 2)
    assert server.is_closed
    async with tunnel(proxy, f"{ALLOWED}:443") as opened:
        await asyncio.wait_for(opened.serving, 2)


async def test_many_connections_at_once_get_each_their_own_answer(world: World) -> None:
    await world.serve_echo(ALLOWED, 7)
    proxy = FilteringProxy(ALLOW_ALL, world.outside(connections=100, resolve_timeout_s=30))

    async def one(number: int) -> bool:
        async with tunnel(proxy, "allowed.test:7") as opened:
            said = b"%d," % number * 5000
            writing = asyncio.ensure_future(opened.client.write(said))
            heard = b""
            while len(heard) < len(said) and (data := await opened.client.read()):
                heard += data
            await writing
            return heard == said

    assert all(await asyncio.gather(*(one(number) for number in range(100))))


async def test_closing_the_proxy_ends_all_its_connections(world: World) -> None:
    await world.serve_echo(ALLOWED, 443)
    proxy = FilteringProxy(ALLOW_ALL, world.outside())
    client, server = Pipe.pair()
    serving = asyncio.ensure_future(proxy.serve(server))
    await client.write(f"CONNECT {ALLOWED}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await client.read_until(b"\r\n\r\n")
    proxy.close()
    await asyncio.wait([serving], timeout=2)
    assert serving.cancelled()
    assert server.is_closed
