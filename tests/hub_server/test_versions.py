"""Which version is the latest, and what publishing one more costs when there are many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event, select

from hub_server.accounts.service import create_user
from hub_server.accounts.tables import User
from hub_server.database import Database
from hub_server.errors import Conflict, Malformed, NotFound
from hub_server.registry.lone_wheels import CheckedWheel, publish_alone
from hub_server.registry.publishing import announce_wheel
from hub_server.registry.service import (
    delete_environment,
    delete_release,
    find_release,
    releases_of,
    unyank_release,
    yank_release,
)
from hub_server.registry.tables import Environment, EnvironmentTag, IndexName, Release, ReleaseFile
from hub_server.registry.wheels import WheelFacts
from prime_cli.hub.models import PackageMetadata, WheelRequest
from tests.running_hub import sha256


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with one user."""
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    with database.write() as session:
        create_user(session, slug="somebody")
    yield database
    database.close()


def publish(database: Database, version: str, name: str = "order") -> None:
    modules = frozenset({name})
    facts = WheelFacts(b"", name, version, summary=None, requires_python=None, requires_dist=[], modules=modules)
    digest = sha256(f"{name} {version}".encode())
    wheel = CheckedWheel(f"{name}-{version}-py3-none-any.whl", digest, 1, facts, metadata_sha256=digest)
    with database.write() as session:
        somebody = session.scalars(select(User)).one()
        publish_alone(session, somebody, somebody, wheel, max_bytes=1000)


@contextmanager
def changing(database: Database, name: str = "order") -> Iterator[tuple]:
    with database.write() as session:
        yield session, session.scalars(select(Environment).where(Environment.name == name)).one()


def latest(database: Database, name: str = "order") -> str:
    with changing(database, name) as (session, environment):
        return find_release(session, environment, "latest").semantic_version


def test_latest_is_the_same_in_whatever_order_versions_are_published(database: Database) -> None:
    versions = ("0.9.0", "0.10.0", "1.0.0rc1", "0.10.0.post1")
    for number, order in enumerate(itertools.permutations(versions)):
        for version in order:
            publish(database, version, f"order{number}")
        assert latest(database, f"order{number}") == "0.10.0.post1"


def test_a_version_published_after_a_higher_one_was_yanked_is_the_latest(database: Database) -> None:
    publish(database, "2.0.0")
    with changing(database) as (session, environment):
        yank_release(session, environment, "2.0.0", "too good")
    assert latest(database) == "2.0.0"
    publish(database, "1.0.0rc1")
    assert latest(database) == "1.0.0rc1"
    publish(database, "0.9.0")
    assert latest(database) == "0.9.0"
    with changing(database) as (session, environment):
        unyank_release(session, environment, "2.0.0")
    assert latest(database) == "2.0.0"
    with changing(database) as (session, environment):
        delete_release(session, environment, "2.0.0")
    assert latest(database) == "0.9.0"


def test_a_version_is_found_by_its_number_or_the_start_of_its_hash(database: Database) -> None:
    for version in ("0.1.0", "0.2.0"):
        publish(database, version)
    content_hash = sha256(b"order 0.1.0")
    with changing(database) as (session, environment):
        for wanted in ("0.1", "v0.1.0", content_hash, content_hash[:8].upper()):
            assert find_release(session, environment, wanted).semantic_version == "0.1.0"
        for wanted in (content_hash[:7], "_" * 8, "%" * 8, "0.3.0"):
            with pytest.raises(NotFound, match=r"there are 0\.2\.0, 0\.1\.0$"):
                find_release(session, environment, wanted)
        for release in releases_of(session, environment):
            release.content_hash = "12345678" + release.content_hash[8:]
        with pytest.raises(Malformed, match="fits 2 versions"):
            find_release(session, environment, "12345678")


def test_publishing_and_finding_read_as_little_however_many_versions_there_are(database: Database) -> None:
    read: list[object] = []

    def note(target: object, _context: object) -> None:
        read.append(target)

    for version in range(40):
        publish(database, f"0.{version}.0")
    for table in (Release, ReleaseFile):
        event.listen(table, "load", note)
    try:
        publish(database, "0.40.0")
        with changing(database) as (session, environment):
            for wanted in ("latest", "0.3.0", sha256(b"order 0.3.0")):
                find_release(session, environment, wanted)
            with pytest.raises(NotFound, match="…"):
                find_release(session, environment, "9.9.9")
    finally:
        for table in (Release, ReleaseFile):
            event.remove(table, "load", note)
    assert len(read) <= 8


def test_a_wheel_that_was_announced_by_a_push_is_published_in_one_step_all_the_same(database: Database) -> None:
    publish(database, "0.1.0")
    digest = sha256(b"order 0.2.0")
    with changing(database) as (session, environment):
        file = {"filename": "order-0.2.0-py3-none-any.whl", "sha256": digest, "size": 1}
        request = WheelRequest(content_hash=digest, semantic_version="0.2.0", metadata=PackageMetadata(), **file)
        announce_wheel(session, environment, request, max_bytes=1000)
    publish(database, "0.2.0")
    with changing(database) as (session, environment):
        first, second = releases_of(session, environment)
        assert (first.semantic_version, first.claimed, len(first.files)) == ("0.2.0", True, 1)
        assert second.semantic_version == "0.1.0"


def test_publishing_raises_the_serial_and_claims_the_name_once(database: Database) -> None:
    for version in ("0.1.0", "0.2.0"):
        with database.read() as session:
            before = session.scalar(select(Environment.index_serial)) or 0
        publish(database, version)
        with changing(database) as (session, environment):
            assert environment.index_serial > before
            assert session.get_one(IndexName, "order").environment_id == environment.id


def test_a_deleted_environment_is_published_anew_without_what_it_was(database: Database) -> None:
    publish(database, "0.1.0")
    with changing(database) as (session, environment):
        environment.tags = [EnvironmentTag(tag="old")]
        delete_environment(session, environment)
    with pytest.raises(Conflict, match="never given again"):
        publish(database, "0.1.0")
    with changing(database) as (_, environment):
        assert environment.deleted_at is not None
    publish(database, "0.2.0")
    with changing(database) as (session, environment):
        assert [release.semantic_version for release in releases_of(session, environment)] == ["0.2.0"]
        assert environment.tags == []
