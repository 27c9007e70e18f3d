"""Connections to the world, made to addresses that were checked."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from ipaddress import IPv4Address

from hub_server.sandbox_node.network.streams import SocketStream
from hub_server.sandboxes.egress import OperatorRules

Resolve = Callable[[str], Awaitable[Sequence[IPv4Address]]]
Dial = Callable[[IPv4Address, int, float], Awaitable[SocketStream]]
_RESOLVERS = 16


class Unresolved(OSError):
    """A name has no IPv4 address, or no name server says so."""


async def resolve(host: str) -> Sequence[IPv4Address]:
    """Return the IPv4 addresses of a host, as the node's own resolver knows them.

    Raises:
        Unresolved: there are none.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(
            _resolvers(), lambda: socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError) as error:
        raise Unresolved(f"{host} has no IPv4 address ({error})") from None
    return list(dict.fromkeys(IPv4Address(str(address[4][0])) for address in found))


def why_not(address: IPv4Address, operator: OperatorRules) -> str | None:
    """Return what keeps sandboxes from an address, whatever their policies say; None where nothing does."""
    if reason := operator.why_not(address):
        return reason
    if not operator.lets(address) and _is_our_own(address):
        return "an address of the node itself"
    return None


async def dial(address: IPv4Address, port: int, timeout_s: float) -> SocketStream:
    """Connect to an address, which nobody resolves any more.

    Raises:
        OSError: nobody answers.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(str(address), port, family=socket.AF_INET)
    return SocketStream(reader, writer)


def _is_our_own(address: IPv4Address) -> bool:
    """Say whether an address is one of this machine: then, and only then, a socket can be bound to it.

    Where the kernel lets sockets bind to any address (`ip_nonlocal_bind`), every address counts as our own, and the
    operator has to name what sandboxes may reach.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError as error:
            return error.errno not in (errno.EADDRNOTAVAIL, errno.EINVAL)
        return True


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Return threads of their own: names that nobody answers for must not hold up the rest of the node."""
    return ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")
