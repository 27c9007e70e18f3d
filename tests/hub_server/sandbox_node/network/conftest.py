"""What the tests of the network share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.hub_server.sandbox_node.network.authority import Authority
from tests.hub_server.sandbox_node.network.world import ALLOWED, OTHER, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.names = {"allowed.test": [ALLOWED], "other.test": [OTHER]}
    yield made
    await made.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
