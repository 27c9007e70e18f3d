"""The only way out of a sandbox: an HTTP proxy that lets through what the sandbox's policy allows.

It takes requests in absolute form, `GET http://host/path`, and tunnels, `CONNECT host:port`. Each request of a
connection is decided for itself. A tunnel that is allowed for the sake of a name is held to that name: on port 443 the
client's first message must be a ClientHello that names the host and hides nothing, on port 80 it must be HTTP, whose
`Host` is checked request by request. A tunnel that is allowed for the sake of an address carries anything.

What cannot be seen without breaking encryption is not checked: a request inside TLS may ask a server that serves
several hosts for another one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import h11

from hub_server.sandbox_node.network import dialer
from hub_server.sandbox_node.network.client_hello import ClientHello
from hub_server.sandbox_node.network.conversation import (
    Conversation,
    Refused,
    destination_of,
    target_in_tunnel,
    target_of_proxy,
)
from hub_server.sandbox_node.network.exchange import NoAnswer, exchange, request_head
from hub_server.sandbox_node.network.flows import Flow, Flows
from hub_server.sandbox_node.network.pace import Pace
from hub_server.sandbox_node.network.streams import ByteStream, SocketStream, splice
from hub_server.sandbox_node.network.watched import WatchedStream
from hub_server.sandboxes.egress import DENY_ALL, Destination, OperatorRules, Policy

_HTTP = 80
_MOST_ADDRESSES = 4  # of one name that are tried


@dataclass(frozen=True)
class ProxyLimits:
    """What one sandbox may ask of its proxy."""

    connections: int = 128  # its agent makes 64 at once; those that end count until all of them is done
    requests_per_second: float = 50.0
    requests_at_once: float = 200.0  # after a quiet time
    bytes_per_second: float = 64 * 1024**2  # both ways together
    names_at_once: int = 4  # that are being resolved
    header_bytes: int = 64 * 1024
    head_timeout_s: float = 60.0  # for a request to come whole, and between two of them
    resolve_timeout_s: float = 10.0
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 600.0  # of a tunnel or a body


@dataclass(frozen=True)
class Outside:
    """How the world is reached, and what of it: the same for all sandboxes of a node."""

    operator: OperatorRules = field(default_factory=OperatorRules)
    resolve: dialer.Resolve = dialer.resolve
    dial: dialer.Dial = dialer.dial
    limits: ProxyLimits = field(default_factory=ProxyLimits)


@dataclass
class Counts:
    """What went through a proxy. `bytes_out` and `bytes_in` are those of bodies and tunnels."""

    connections: int = 0
    refused: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


class FilteringProxy:
    """The proxy of one sandbox."""

    def __init__(self, policy: Policy, outside: Outside | None = None) -> None:
        self.counts = Counts()
        self._policy = policy
        self._outside = outside or Outside()
        self._limits = self._outside.limits
        self._names = asyncio.Semaphore(self._limits.names_at_once)
        self._pace = Pace(self._limits.requests_per_second, self._limits.requests_at_once)
        self._flow = Pace(self._limits.bytes_per_second, self._limits.bytes_per_second)
        self._connections: set[asyncio.Task[Any]] = set()
        self._flows = Flows()

    @property
    def policy(self) -> Policy:
        """Return the policy that holds now."""
        return self._policy

    async def apply(self, policy: Policy) -> None:
        """Let another policy hold, for everything new at once; return when what it forbids is cut."""
        self._policy = policy
        await self._flows.cut_what_is_forbidden_by(policy)

    def close(self) -> None:
        """Cut everything: there is no sandbox any more."""
        self._policy = DENY_ALL
        for connection in self._connections:
            connection.cancel()

    async def serve(self, stream: ByteStream) -> None:
        """Serve one connection that a program inside made to the proxy until it ends, in a task of its own."""
        self.counts.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        conversation = self._conversation(stream)
        try:
            if len(self._connections) > self._limits.connections:
                reason = f"the sandbox has {self._limits.connections} connections open already"
                await self._refuse(conversation, Refused(503, reason))
                await conversation.linger()
            else:
                await self._converse(conversation, None)
        except (OSError, h11.ProtocolError):
            pass  # A side has gone or is silent, or speaks no HTTP any more: there is nobody to tell.
        finally:
            self._connections.discard(task)
            stream.close()

    def _conversation(self, stream: ByteStream) -> Conversation:
        limits = self._limits
        return Conversation(stream, limits.header_bytes, limits.head_timeout_s, limits.idle_timeout_s)

    async def _converse(self, conversation: Conversation, tunnel: Destination | None) -> None:
        """Answer requests, one after the other; inside a tunnel they are for its destination."""
        goes_on = True
        while goes_on:
            try:
                request = await conversation.request()
                if request is None:
                    return
                await self._pace.turn()
                if tunnel is not None:
                    await self._forward(conversation, request, tunnel, target_in_tunnel(request, tunnel))
                elif request.method == b"CONNECT":
                    await self._tunnel(conversation, destination_of(request.target))
                    return
                else:
                    await self._forward(conversation, request, *target_of_proxy(request))
            except Refused as refusal:
                await self._refuse(conversation, refusal)
            goes_on = conversation.goes_on()
        await conversation.linger()

    async def _refuse(self, conversation: Conversation, refusal: Refused) -> None:
        self.counts.refused += 1
        await conversation.refuse(refusal)

    async def _forward(
        self, conversation: Conversation, request: h11.Request, destination: Destination, path: bytes
    ) -> None:
        """Send a plain request on, and its answer back."""
        address, outer = await self._connect(destination)
        host = destination.host if destination.port == _HTTP else str(destination)
        head = request_head(request.method, path, host.encode("ascii"), list(request.headers))
        flow = Flow(conversation.stream, outer, destination, address, watched=True, held_to_name=True)
        await self._flows.run(flow, self._exchange(conversation, head, outer))

    async def _exchange(self, conversation: Conversation, head: h11.Request, outer: ByteStream) -> None:
        async def body() -> AsyncIterator[bytes]:
            async for data in conversation.body():
                await self._carried(len(data), 0)
                yield data

        try:
            async with exchange(outer, head, body(), self._limits.idle_timeout_s) as answer:
                begin = h11.Response(status_code=answer.status, headers=answer.headers, reason=answer.reason)
                await conversation.send(begin)
                async for data in answer.body():
                    await self._carried(0, len(data))
                    await conversation.send(h11.Data(data=data))
                await conversation.send(h11.EndOfMessage())
        except NoAnswer as error:
            raise Refused(502, str(error)) from None

    async def _tunnel(self, conversation: Conversation, destination: Destination) -> None:
        """Open a tunnel, and hold it to the name that it is allowed for."""
        if destination.port == _HTTP and self._policy.judge(destination).by_name:
            received = await conversation.switch()
            inside = self._conversation(conversation.stream)
            inside.begin_with(received)
            await self._converse(inside, destination)
            return
        address, outer = await self._connect(destination)
        policy = self._policy
        watched = policy.names_are_denied or policy.judge(destination, address).by_name
        flow = Flow(conversation.stream, outer, destination, address, watched)
        await self._flows.run(flow, self._carry(conversation, flow))

    async def _carry(self, conversation: Conversation, flow: Flow) -> None:
        """Carry what a tunnel is for."""
        received = await conversation.switch()
        inner: ByteStream = conversation.stream
        if flow.watched:
            inner = WatchedStream(inner, received, lambda hello: self._look(flow, hello))
        elif received:
            await flow.outer.write(received)
        await splice(inner, flow.outer, self._carried, self._limits.idle_timeout_s)

    async def _carried(self, out: int, back: int) -> None:
        self.counts.bytes_out += out
        self.counts.bytes_in += back
        await self._flow.turn(out + back)

    def _look(self, flow: Flow, hello: ClientHello | None) -> str | None:
        """Return why a tunnel that begins so must not go on."""
        flow.server_name = hello.server_name if hello is not None else None
        flow.held_to_name = hello is not None and not hello.encrypted and hello.server_name == flow.destination.host
        reason = flow.why_not(self._policy)
        self.counts.refused += reason is not None
        return reason

    async def _connect(self, destination: Destination) -> tuple[IPv4Address, SocketStream]:
        """Connect to a destination, if that is allowed.

        The caller makes a flow of it before it awaits anything else, else a change of the policy would miss it.

        Raises:
            Refused: it is not allowed, or does not answer.
        """
        verdict = self._policy.judge(destination)
        if not verdict.allowed:
            raise Refused(403, verdict.reason)
        addresses = [destination.address] if destination.address else await self._addresses(destination.host)
        reasons = {address: self._why_not(destination, address) for address in addresses}
        allowed = [address for address, reason in reasons.items() if reason is None]
        if not allowed:
            raise Refused(403, next(reason for reason in reasons.values() if reason))
        for address in allowed[:_MOST_ADDRESSES]:
            try:
                outer = await self._outside.dial(address, destination.port, self._limits.connect_timeout_s)
            except OSError:
                continue
            # The policy may have changed while nobody answered.
            if (reason := self._why_not(destination, address)) is not None:
                outer.abort()
                raise Refused(403, reason)
            return address, outer
        raise Refused(502, f"{destination} does not answer")

    async def _addresses(self, host: str) -> Sequence[IPv4Address]:
        """Return the addresses of a name, at least one."""
        try:
            async with asyncio.timeout(self._limits.resolve_timeout_s):
                await self._names.acquire()
                looking = asyncio.ensure_future(self._outside.resolve(host))
                # A name server that is silent keeps a thread longer than we wait: until then the sandbox has one less.
                looking.add_done_callback(self._has_looked)
                addresses = await asyncio.shield(looking)
        except dialer.Unresolved as error:
            raise Refused(502, str(error)) from None
        except TimeoutError:
            raise Refused(504, f"no name server answers for {host}") from None
        if not addresses:
            raise Refused(502, f"{host} has no IPv4 address")
        return addresses

    def _has_looked(self, looking: asyncio.Future[Sequence[IPv4Address]]) -> None:
        self._names.release()
        if not looking.cancelled():
            looking.exception()  # who asked may have gone

    def _why_not(self, destination: Destination, address: IPv4Address) -> str | None:
        """Return why an address of a destination must not be connected to. It does not tell the address of a name."""
        verdict = self._policy.judge(destination, address)
        if not verdict.allowed:
            return verdict.reason
        if (what := dialer.why_not(address, self._outside.operator)) is not None:
            return f"{destination} is not public ({what}); only the operator of the node can allow it"
        return None
