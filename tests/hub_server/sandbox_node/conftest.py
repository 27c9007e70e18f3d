"""Sandboxes for tests, and a node of them in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hub_server.sandbox_node.backends import Backend, RootFilesystem
from hub_server.sandbox_node.backends.process import ProcessBackend
from hub_server.sandbox_node.errors import ImageNotThere
from hub_server.sandbox_node.network.proxy import Outside
from hub_server.sandbox_node.node import Node, NodeSettings
from hub_server.sandbox_node.pool_plan import PoolSettings
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import End, EndKind, Level, Limits, Shape
from hub_server.sandboxes.egress import OperatorRules

HOST = RootFilesystem("host", None, {"MADE_BY": "the image"})


class HostOnly:
    """A store with the image of the host, which can be replaced as an import would."""

    def __init__(self) -> None:
        self.host = HOST

    async def find(self, reference: str) -> RootFilesystem:
        if reference != "host":
            raise ImageNotThere(f"there is no image {reference}")
        return self.host

    def known(self, name: str) -> RootFilesystem | None:
        return self.host if name == "host" else None

    def names(self) -> list[str]:
        return ["host"]

    def collect(self) -> None:
        pass


MakeNode = Callable[..., Awaitable[Node]]


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[MakeNode]:
    """Make nodes that are closed after the test; sandboxes are plain processes where no backend is given."""
    nodes: list[Node] = []

    async def make(
        *, backend: Backend | None = None, has_memory: Any = lambda: True, private: str = "", **pools: Any
    ) -> Node:
        settings = NodeSettings(
            PoolSettings(**{"kept": (Shape("host"),), "least_idle": 0, **pools}),
            min_level=Level.NONE,
            outside=Outside(OperatorRules.parse(private.split())),
        )
        node = Node(backend or ProcessBackend(tmp_path), HostOnly(), settings, has_memory=has_memory)
        nodes.append(node)
        node.start()
        return node

    yield make
    for node in nodes:
        await node.close()


@pytest.fixture
async def plain_sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A live sandbox of the process backend: for what is the same in all of them."""
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    backend = ProcessBackend(folder)
    confined = await backend.create("plain", RootFilesystem("host", None, {}), Limits())
    sandbox = Sandbox("plain", "host", confined, {})
    yield sandbox
    await sandbox.destroy(End(EndKind.DELETED, "it was deleted"))
    await backend.close()
