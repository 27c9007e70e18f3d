"""A gateway before a real sandbox, on the loopback device."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.backends.process import ProcessBackend
from hub_server.sandbox_node.errors import Gone
from hub_server.sandbox_node.gateway.app import create_gateway
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Limits
from hub_server.sandboxes.tokens import make_token
from tests.hub_server.sandbox_node.gateway.loopback import served

SECRET = b"secret of the node"
LIMITS = Limits(file_bytes=4 * 1024**2)


@dataclass
class Served:
    """A sandbox behind a gateway, and a client that holds its token."""

    sandbox: Sandbox
    url: str
    client: httpx.AsyncClient
    folder: Path  # of files for tests

    async def post(self, what: str, **more: Any) -> httpx.Response:
        """Send something to the sandbox."""
        return await self.client.post(f"/sandboxes/{self.sandbox.id}/{what}", **more)

    async def get(self, what: str, **more: Any) -> httpx.Response:
        """Ask the sandbox for something."""
        return await self.client.get(f"/sandboxes/{self.sandbox.id}/{what}", **more)


class Sandboxes(dict[str, Sandbox]):
    """As a node keeps them."""

    def get(self, sandbox_id: str) -> Sandbox:  # type: ignore[override]
        """Return a live one."""
        sandbox = self[sandbox_id]
        if sandbox.end.done():
            raise Gone(sandbox.end.result())
        return sandbox


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Served]:
    """One sandbox that is none, which costs least, behind a gateway."""
    backend = ProcessBackend(tmp_path)
    confined = await backend.create("sb-1", RootFilesystem("host", None, {}), LIMITS)
    sandbox = Sandbox("sb-1", "host", confined, {"HOME": str(tmp_path), "OF_SANDBOX": "yes"})
    headers = {"authorization": f"Bearer {make_token(SECRET, 'sb-1').text}"}
    files = tmp_path / "files"
    files.mkdir()
    try:
        async with (
            served(create_gateway(Sandboxes({"sb-1": sandbox}), SECRET)) as url,
            httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30) as client,
        ):
            yield Served(sandbox, url, client, files)
    finally:
        await backend.close()
