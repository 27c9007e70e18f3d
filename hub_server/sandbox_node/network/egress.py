"""What one sandbox may reach: its policy, which may change while it runs, and the way out."""

from __future__ import annotations

import asyncio

from hub_server.sandbox_node.network.proxy import Counts, FilteringProxy, Outside
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandboxes.egress import DENY_ALL, Policy

# Where programs inside find the proxy, unless something of the image is there already.
PROXY_PORT = 3128
_NOT_PROXIED = "localhost,127.0.0.1,::1"


class Egress:
    """The way out of one sandbox; at first there is none.

    The agent listens inside for the proxy from the first policy on that lets anybody be reached, and commands that
    start from then on find it by the usual variables. Programs that ignore those reach nobody: the sandbox has no other
    network.

    Attributes:
        generation: counts the policies that were asked for.
        applied_generation: the last of them that holds.
    """

    def __init__(self, sandbox: Sandbox, outside: Outside | None = None) -> None:
        self.generation = self.applied_generation = 0
        self._sandbox = sandbox
        self._proxy = FilteringProxy(DENY_ALL, outside)
        self._port: int | None = None
        self._one_at_a_time = asyncio.Lock()
        sandbox.end.add_done_callback(lambda _: self._proxy.close())

    @property
    def policy(self) -> Policy:
        """Return the policy that holds."""
        return self._proxy.policy

    @property
    def counts(self) -> Counts:
        """Return what went out and came in."""
        return self._proxy.counts

    async def set(self, policy: Policy) -> None:
        """Let a policy hold; when this returns, nothing is open that it forbids.

        Raises:
            Gone: the sandbox has ended.
            NotStarted: no proxy can be offered inside.
        """
        self.generation += 1
        generation = self.generation
        async with self._one_at_a_time:
            if self._port is None and not policy.denies_all:
                self._port = await self._sandbox.offer_proxy(PROXY_PORT, self._proxy.serve)
                for name, value in self.environment().items():
                    self._sandbox.environment.setdefault(name, value)
            await self._proxy.apply(policy)
            self.applied_generation = generation

    def environment(self) -> dict[str, str]:
        """Return the variables that lead programs to the proxy; none where there is no way out."""
        if self._port is None:
            return {}
        url = f"http://127.0.0.1:{self._port}"
        # Programs disagree about the case of the names, and some take the one, some the other.
        variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url)
        return {**variables, "NO_PROXY": _NOT_PROXIED, "no_proxy": _NOT_PROXIED, "NODE_USE_ENV_PROXY": "1"}
