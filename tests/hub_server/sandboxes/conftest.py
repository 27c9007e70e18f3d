"""A hub with a node that runs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_sandbox_node import FakeNode, fake_node
from tests.running_hub import RunningHub


@pytest.fixture
def node(hub: RunningHub) -> Iterator[FakeNode]:
    """A node that is registered with the hub, alone, for one test."""
    with fake_node() as running:
        running.register(hub)
        yield running
        running.leave(hub)
