"""One hub for all tests of the server that do not need one of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from running_hub import RunningHub, start_hub

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that many tests share; each works as users of its own."""
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    yield running
    running.end()


@pytest.fixture
def new_user(hub: RunningHub) -> Callable[[], tuple[str, str]]:
    """Make users who own nothing yet: returns (slug, API key)."""

    def make() -> tuple[str, str]:
        slug = f"user-{os.getpid()}-{next(_numbers)}"
        return slug, hub.key_of(slug)

    return make
