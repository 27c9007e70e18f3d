"""What is open between a sandbox and the world, so that it can be cut when the policy changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from hub_server.sandbox_node.network.streams import ByteStream, SocketStream
from hub_server.sandboxes.egress import Destination, Policy


@dataclass(eq=False)
class Flow:
    """A request under way, or a tunnel.

    Attributes:
        inner: the sandbox's side.
        outer: the world's.
        destination: whom the sandbox asked for.
        address: what it is connected to.
        watched: it is looked at what is sent; else nobody knows for whom that is.
        held_to_name: what is sent is for the host that was asked for; None until its first bytes have come.
        server_name: the host that a TLS client named.
    """

    inner: ByteStream
    outer: SocketStream
    destination: Destination
    address: IPv4Address
    watched: bool
    held_to_name: bool | None = None
    server_name: str | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def why_not(self, policy: Policy) -> str | None:
        """Return why a policy does not let this go on; None where it does."""
        verdict = policy.judge(self.destination, self.address)
        if not verdict.allowed:
            return verdict.reason
        if (verdict.by_name or policy.names_are_denied) and not self.watched:
            return f"nobody looked whom the tunnel to {self.destination} is for"
        if verdict.by_name and self.held_to_name is False:
            return f"what was sent to {self.destination} is not TLS that names this host and hides nothing"
        if policy.names_are_denied and self.server_name is not None:
            named = policy.judge(Destination(self.server_name, self.destination.port))
            return None if named.allowed else named.reason
        return None


class Flows:
    """The open flows of one sandbox."""

    def __init__(self) -> None:
        self._work: dict[Flow, asyncio.Task[None]] = {}

    async def run(self, flow: Flow, work: Coroutine[None, None, None]) -> None:
        """Do the work of a flow; it can be cut from the first moment on. The outer side is closed in the end.

        Raises:
            ConnectionAbortedError: the flow was cut, and both its sides are closed.
        """
        self._work[flow] = task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():
                flow.outer.abort()
                flow.inner.close()
            else:
                flow.outer.close()
            del self._work[flow]
            flow.over.set()
        if task.cancelled():
            raise ConnectionAbortedError("the policy forbids it now")
        task.result()

    async def cut_what_is_forbidden_by(self, policy: Policy) -> None:
        """End what a policy forbids, and return when that is closed."""
        forbidden = [flow for flow in self._work if flow.why_not(policy) is not None]
        for flow in forbidden:
            self._work[flow].cancel()
        await asyncio.gather(*(flow.over.wait() for flow in forbidden))
