"""The queue of checks: who gets one, what happens to those of dead runners, what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from hub_server.accounts.service import create_user
from hub_server.checks import service
from hub_server.checks.tables import Check, CheckStatus
from hub_server.database import Database, now
from hub_server.errors import Conflict, NotFound
from hub_server.registry.tables import Environment, Release


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with one environment that has two versions, of which the second is the latest."""
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    with database.write() as session:
        owner = create_user(session, slug="alice")
        session.flush()
        session.add(Environment(id="env", owner_id=owner.id, name="toy", normalized_name="toy", visibility="PUBLIC"))
        session.flush()
        for number in ("1", "2"):
            release = Release(
                id=f"v{number}", environment_id="env", semantic_version=number, version_key=number,
                content_hash=number * 64, claimed=True, published_at=now(),
            )  # fmt: skip
            session.add(release)
        session.get_one(Environment, "env").latest_release_id = "v2"
    yield database
    database.close()


def queue(database: Database, release_id: str = "v1") -> str:
    """Queue the check of a version as publishing does, and return its id."""
    with database.write() as session:
        service.queue_first_check(session, release_id, {})
        own = select(Check.id).where(Check.release_id == release_id)
        return session.scalars(own.order_by(Check.queued_at.desc(), Check.id)).first() or ""


def claim(database: Database, runner: str) -> Check | None:
    with database.write() as session:
        return service.claim_check(session, runner)


def state(database: Database, check_id: str) -> tuple[str, int]:
    with database.read() as session:
        check = session.get_one(Check, check_id)
        return check.status, check.attempts


def lose(database: Database, check_id: str) -> None:
    """Let the claim of a check be as old as that of a dead runner."""
    with database.write() as session:
        old = now() - service.LEASE - timedelta(seconds=1)
        session.execute(update(Check).where(Check.id == check_id).values(renewed_at=old))


def test_a_check_is_given_to_one_runner_only(database: Database) -> None:
    check_id = queue(database)
    first, second = claim(database, "one"), claim(database, "two")
    assert first is not None
    assert (first.id, second) == (check_id, None)


def test_a_runner_that_looked_before_another_claimed_gets_nothing(database: Database) -> None:
    check_id = queue(database)
    stale = database.engine.connect()
    assert claim(database, "one") is not None
    with database.write() as session:
        taken = session.execute(
            update(Check).where(Check.id == check_id, Check.status == CheckStatus.QUEUED).values(runner="two")
        )
        assert taken.rowcount == 0
    stale.close()


def test_the_one_that_waits_longest_comes_first_and_deleted_versions_never(database: Database) -> None:
    first, second = queue(database, "v1"), queue(database, "v2")
    with database.write() as session:
        session.execute(update(Check).where(Check.id == first).values(queued_at=now() + timedelta(minutes=1)))
        assert (service.claim_check(session, "one") or Check()).id == second
        session.get_one(Release, "v1").deleted_at = now()
        session.flush()
        assert service.claim_check(session, "one") is None


def test_what_a_dead_runner_left_is_queued_again_and_given_up_the_third_time(database: Database) -> None:
    check_id = queue(database)
    for attempt in (1, 2, 3):
        assert claim(database, f"runner {attempt}") is not None
        with database.write() as session:
            assert service.requeue_lost(session) == 0, "a living runner keeps its claim"
        lose(database, check_id)
        with database.read() as session:
            assert service.waiting_or_lost(session)
        with database.write() as session:
            assert service.requeue_lost(session) == 1
    assert state(database, check_id) == (CheckStatus.ERROR, 3)


def test_a_runner_that_lost_its_claim_writes_nothing(database: Database) -> None:
    check_id = queue(database)
    assert claim(database, "slow") is not None
    lose(database, check_id)
    with database.write() as session:
        service.requeue_lost(session)
    assert claim(database, "quick") is not None
    with database.write() as session:
        assert not service.renew_claim(session, check_id, "slow")
        assert not service.finish_check(session, check_id, "slow", CheckStatus.FAILED, {}, "")
        assert service.renew_claim(session, check_id, "quick")
        assert service.finish_check(session, check_id, "quick", CheckStatus.PASSED, {"python": "3"}, "log")
    assert state(database, check_id) == (CheckStatus.PASSED, 2)


def test_a_check_that_was_broken_off_waits_again_without_having_counted(database: Database) -> None:
    check_id = queue(database)
    assert claim(database, "one") is not None
    with database.write() as session:
        service.release_claim(session, check_id, "one")
    assert state(database, check_id) == (CheckStatus.QUEUED, 0)


def test_a_retry_checks_the_newest_version_or_that_of_an_earlier_check(database: Database) -> None:
    first = queue(database, "v1")
    with database.write() as session:
        environment = session.get_one(Environment, "env")
        assert service.retry_check(session, environment, None).release_id == "v2"
        assert service.retry_check(session, environment, first).id == first, "it waits already"
        with pytest.raises(NotFound, match="check nothing of alice/toy not found"):
            service.retry_check(session, environment, "nothing")


def test_a_check_that_runs_is_not_queued_a_second_time(database: Database) -> None:
    check_id = queue(database)
    assert claim(database, "one") is not None
    with database.write() as session, pytest.raises(Conflict, match="is running; wait for it"):
        service.retry_check(session, session.get_one(Environment, "env"), check_id)


def test_of_many_checks_of_a_version_the_newest_five_are_kept(database: Database) -> None:
    with database.write() as session:
        release = session.get_one(Release, "v1")
        for number in range(8):
            check = service.queue_check(session, release, "retry")
            check.status, check.queued_at = CheckStatus.FAILED, now() + timedelta(seconds=number)
            session.flush()
        newest = service.queue_check(session, release, "retry")
        newest.queued_at = now() + timedelta(seconds=60)
        session.flush()
        assert len(session.scalars(select(Check.id)).all()) <= 6
        assert service.latest_checks(session, ["v1", "v2"])["v1"].id == newest.id
