"""One hub for all tests of the server that do not need one of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.object_store import ObjectStore, running_store
from tests.postgres import Postgres, running_postgres
from tests.published_tools import INSTALLERS, installed
from tests.running_hub import RunningHub, start_hub

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `both_databases` on a hub over SQLite and a folder, and on one over PostgreSQL and S3."""
    if metafunc.definition.get_closest_marker("both_databases") and "hub" in metafunc.fixturenames:
        metafunc.parametrize("hub", ["sqlite", "postgresql"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for empty databases; skips where there is none."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """An S3-compatible store for empty buckets."""
    with running_store() as store:
        yield store


@pytest.fixture(scope="session")
def hub(request: pytest.FixtureRequest) -> RunningHub:
    """A hub that many tests share; each works as users of its own."""
    running = request.getfixturevalue(f"hub_on_{getattr(request, 'param', 'sqlite')}")
    assert isinstance(running, RunningHub)
    return running


@pytest.fixture(scope="session")
def hub_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """The hub of most tests."""
    running = start_hub(tmp_path_factory.mktemp("hub") / "data")
    yield running
    running.end()


@pytest.fixture(scope="session")
def hub_on_postgresql(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, object_store: ObjectStore
) -> Iterator[RunningHub]:
    """The same on the other database, with its blobs in the other kind of store."""
    data_dir = tmp_path_factory.mktemp("hub-on-postgresql") / "data"
    bucket = object_store.fresh_bucket()
    running = start_hub(data_dir, "--database-url", postgres.fresh_url(), "--blobs", bucket.url)
    yield running
    running.end()


@pytest.fixture
def new_user(hub: RunningHub) -> Callable[[], tuple[str, str]]:
    """Make users who own nothing yet: returns (slug, API key)."""

    def make() -> tuple[str, str]:
        slug = f"user-{os.getpid()}-{next(_numbers)}"
        return slug, hub.key_of(slug)

    return make


@pytest.fixture(scope="session")
def tool_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tools of other people are installed; kept from one run of the tests to the next."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    return cache.mkdir("published-tools") if cache is not None else tmp_path_factory.mktemp("published-tools")


@pytest.fixture(scope="session")
def tools(tool_cache: Path) -> Path:
    """The bin folder of an environment with pip, uv, twine and keyring."""
    return installed(tool_cache, *INSTALLERS)
