"""A hub with a node that runs nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.fake_sandbox_node import FakeNode, fake_node
from tests.hub_server.sandboxes.sdk_session import CuttableProxy
from tests.running_hub import RunningHub, answer, start_hub


@pytest.fixture
def node(hub: RunningHub) -> Iterator[FakeNode]:
    """A node that is registered with the hub, alone, for one test."""
    with fake_node() as running:
        running.register(hub)
        yield running
        running.leave(hub)


@dataclass
class SandboxHub:
    """A hub with a real node beside it, whose connections can be cut."""

    hub: RunningHub
    proxy: CuttableProxy
    level: str  # of what the node makes on this host


@pytest.fixture(scope="session")
def sandbox_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxHub]:
    """The best that this host can give, beside a hub."""
    proxy = CuttableProxy()
    url = f"http://127.0.0.1:{proxy.port}"
    options = ("--sandboxes-min-level", "none", "--sandboxes-port", str(proxy.target_port), "--sandboxes-url", url)
    hub = start_hub(tmp_path_factory.mktemp("hub-with-sandboxes") / "data", "--sandboxes", *options)
    try:
        yield SandboxHub(hub, proxy, _level_of_node(hub))
    finally:
        hub.end()
        proxy.close()


def _level_of_node(hub: RunningHub) -> str:
    deadline = time.monotonic() + 60
    with hub.client(hub.admin_key) as admin:
        while True:
            nodes = answer(admin.get("/sandbox-nodes"))["nodes"]
            if nodes:
                level: str = nodes[0]["level"]
                return level
            assert time.monotonic() < deadline, f"no node came: {hub.log}"
            time.sleep(0.1)
