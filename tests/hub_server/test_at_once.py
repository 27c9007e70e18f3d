"""What several clients do in the same moment, on both databases: one of them wins, and nothing is half done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from hub_server.accounts.service import create_user
from hub_server.accounts.tables import User
from hub_server.checks import service as checks
from hub_server.database import Database, now
from hub_server.errors import NotFound
from hub_server.registry import publishing
from hub_server.registry.service import delete_environment
from hub_server.registry.tables import Environment, Release, ReleaseFile
from tests.postgres import Postgres
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
Result = TypeVar("Result")


def at_once(*calls: Callable[[], Result]) -> list[Result]:
    """Make these calls in the same moment."""
    barrier = threading.Barrier(len(calls))

    def make(call: Callable[[], Result]) -> Result:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(make, calls))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with one environment, of which a version is published and a draft is ready to be."""
    url = f"sqlite:///{tmp_path}/hub.db"
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        assert isinstance(server, Postgres)
        url = server.fresh_url()
    database = Database(url)
    database.migrate()
    with database.write() as session:
        owner = create_user(session, slug="alice")
        session.flush()
        session.add(Environment(id="env", owner_id=owner.id, name="toy", normalized_name="toy", visibility="PRIVATE"))
        session.flush()
        for number in ("1", "2"):
            session.add(
                Release(
                    id=f"v{number}",
                    environment_id="env",
                    semantic_version=number,
                    version_key=number,
                    content_hash=number * 64,
                    claimed=number == "1",
                    published_at=now(),
                    details={},
                )
            )
            session.flush()
            wheel = f"toy-{number}-py3-none-any.whl"
            session.add(ReleaseFile(release_id=f"v{number}", kind="wheel", filename=wheel, sha256="0" * 64, size=1))
        session.flush()
        for file in session.query(ReleaseFile):
            file.state = "verified"
    yield database
    database.close()


@pytest.mark.both_databases
def test_of_two_that_make_one_environment_at_once_one_makes_it_and_both_get_it(
    hub: RunningHub, new_user: NewUser
) -> None:
    _, key = new_user()
    for attempt in range(5):
        clients = [hub.client(key), hub.client(key)]
        found = at_once(*(Push(client, f"fresh-{attempt}", "0.1.0").resolve for client in clients))
        assert sorted(data["created"] for data in found) == [False, True]
        assert found[0]["id"] == found[1]["id"]


@pytest.mark.both_databases
@pytest.mark.parametrize("how", ["leave", "step down", "remove the other", "demote the other"])
def test_of_two_owners_that_go_at_once_one_stays(hub: RunningHub, new_user: NewUser, how: str) -> None:
    (one, key), (two, other) = new_user(), new_user()
    slug = f"t-{one}"[:30]
    with hub.client(key) as first, hub.client(other) as second:
        answer(first.post("/teams", json={"slug": slug}))
        answer(first.put(f"/teams/{slug}/members/{two}", json={"role": "owner"}))
        members = f"/teams/{slug}/members"
        targets = (one, two) if how in ("leave", "step down") else (two, one)
        calls = []
        for client, target in zip((first, second), targets, strict=True):
            if how in ("leave", "remove the other"):
                calls.append(lambda client=client, target=target: client.delete(f"{members}/{target}"))
            else:
                calls.append(
                    lambda client=client, target=target: client.put(f"{members}/{target}", json={"role": "reader"})
                )
        responses = at_once(*calls)
        assert sorted(response.status_code == 200 for response in responses) == [False, True], responses
        (refused,) = [response for response in responses if response.status_code != 200]
        # Whoever is out of the team when the second call comes in is told so before anything is looked at.
        assert refused.status_code in (403, 404, 409), refused.text
        left = [
            answer(response)["data"] for response in (first.get(members), second.get(members)) if response.is_success
        ]
        assert [row["role"] for row in left[0]].count("owner") == 1


def test_a_check_is_claimed_by_one_of_many_runners_at_once(database: Database) -> None:
    with database.write() as session:
        checks.queue_first_check(session, "v1", {})

    def claim(name: str) -> str | None:
        with database.write("checks") as session:
            claimed = checks.claim_check(session, name)
            return claimed.id if claimed is not None else None

    claimed = at_once(*(lambda name=f"runner {number}": claim(name) for number in range(6)))
    assert [found is not None for found in claimed].count(True) == 1


def test_a_version_whose_environment_is_deleted_while_it_is_checked_is_not_published(database: Database) -> None:
    with database.write() as session:
        delete_environment(session, session.get_one(Environment, "env"))
    with (
        pytest.raises(NotFound, match="environment toy was deleted meanwhile: not found"),
        database.write(publishing.scope_of("env")) as session,
    ):
        publishing.publish(session, session.query(User).one(), session.get_one(Release, "v2"))
    with database.read() as session:
        assert not session.get_one(Release, "v2").claimed
        assert session.get_one(Environment, "env").latest_release_id is None
