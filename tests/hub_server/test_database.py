"""The tables, their migrations and their transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, select

from hub_server.accounts.keys import mint_key, revoke_key, user_of_key
from hub_server.accounts.service import create_user, slug_of_operator
from hub_server.accounts.tables import ApiKey, User
from hub_server.database import Base, Database, open_database
from hub_server.errors import Conflict, NotServing
from hub_server.registry.listing import Filters, Listing, list_environments
from hub_server.registry.tables import Environment, Release, ReleaseAbout


@pytest.fixture(params=["sqlite", "postgresql"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty database with all tables."""
    url = f"sqlite:///{tmp_path}/hub.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").fresh_url()
    database = open_database(url)
    yield database
    database.close()


def test_the_migrations_arrive_at_the_tables_of_the_code(database: Database) -> None:
    database.migrate()

    def is_ours(name: str | None, _kind: str, _parents: object) -> bool:
        return not str(name).startswith(
            "searched_words"
        )  # the index over words, which each database has in its own way

    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": is_ours})
        assert compare_metadata(context, Base.metadata) == []


def test_what_was_published_before_there_was_a_search_of_readmes_is_found(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for url in (f"sqlite:///{tmp_path}/hub.db", request.getfixturevalue("postgres").fresh_url()):
        database = Database(url)
        database.migrate("0014")
        with database.write() as session:
            owner = create_user(session, slug="somebody")
            environment = Environment(owner_id=owner.id, name="a", normalized_name="a", visibility="PUBLIC")
            session.add(environment)
            session.flush()
            release = Release(
                environment_id=environment.id, semantic_version="1", version_key="1", content_hash="0", claimed=True
            )
            session.add(release)
            session.flush()
            session.add(ReleaseAbout(release_id=release.id, readme="A quixotic task", url_dependencies=[]))
            environment.latest_release_id = release.id
        database.migrate()
        with database.read() as session:
            for word, count in (("quixot", 1), ("nothing", 0)):
                found = list_environments(session, None, Listing(Filters(search=word)))
                assert (len(found[0]), found[1]) == (count, count)
        database.close()


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    def add_twice() -> None:
        with database.write() as session:
            create_user(session, slug="somebody")
            create_user(session, slug="somebody")

    with pytest.raises(Conflict):
        add_twice()
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(User)) == 0


def test_many_writers_wait_for_each_other(database: Database) -> None:
    def add(number: int) -> None:
        with database.write() as session:
            count = session.scalar(select(func.count()).select_from(User))
            create_user(session, slug=f"user-{number}", name=f"the {count}th")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert len(set(session.scalars(select(User.name)))) == 12


def test_only_the_hash_of_a_key_is_kept_and_a_revoked_key_is_nobodys(database: Database) -> None:
    with database.write() as session:
        key = mint_key(session, create_user(session, slug="somebody"), name="a key")
    found = user_of_key(database, key)
    assert found is not None
    assert found.slug == "somebody"
    with database.read() as session:
        row = session.scalars(select(ApiKey)).one()
        assert key not in str(vars(row))
        assert row.last_used_at is not None
    with database.write() as session:
        assert revoke_key(session, key)
        assert not revoke_key(session, key)
    assert user_of_key(database, key) is None
    assert user_of_key(database, "prime_other") is None


def test_a_database_url_that_cannot_be_is_one_line() -> None:
    with pytest.raises(NotServing, match="cannot use the database URL"):
        Database("nonsense")


@pytest.mark.parametrize(("name", "slug"), [("Ada Lovelace", "ada-lovelace"), ("x", "admin"), ("_svc_", "svc")])
def test_the_operators_name_becomes_a_slug(monkeypatch: pytest.MonkeyPatch, name: str, slug: str) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: name)
    assert slug_of_operator() == slug
