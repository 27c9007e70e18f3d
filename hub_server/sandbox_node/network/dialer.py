"""Connections to the world, made to addresses that were checked."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address

from hub_server.sandbox_node.network.streams import SocketStream
from hub_server.sandboxes.egress import OperatorRules

Resolve = Callable[[str], Awaitable[Sequence[IPv4Address]]]
Dial = Callable[[IPv4Address, int, float], Awaitable[SocketStream]]


class Unresolved(OSError):
    """A name has no IPv4 address, or no name server says so."""


async def resolve(host: str) -> Sequence[IPv4Address]:
    """Return the IPv4 addresses of a host, as the node's own resolver knows them.

    Raises:
        Unresolved: there are none.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[IPv4Address]] = loop.create_future()

    def settle(addresses: list[IPv4Address], error: Exception | None) -> None:
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(Unresolved(f"{host} has no IPv4 address ({error})"))

    def look() -> None:
        addresses, problem = [], None
        try:
            found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(IPv4Address(str(address[4][0])) for address in found))
        except (OSError, UnicodeError) as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the node has ended
            loop.call_soon_threadsafe(settle, addresses, problem)

    # A thread of its own, not one of a few: silent name servers that one sandbox asks must not hold up another, nor the
    # end of the node.
    threading.Thread(target=look, name="resolve", daemon=True).start()
    return await answer


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
