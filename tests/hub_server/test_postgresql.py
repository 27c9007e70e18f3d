"""Several servers on one PostgreSQL database keep the promises of one."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError

from hub_server.accounts.service import create_user
from hub_server.accounts.tables import User
from hub_server.database import Database, open_database
from hub_server.errors import NotServing
from hub_server.registry.tables import IndexName
from tests.postgres import Postgres
from tests.running_hub import PRIME, Push, RunningHub, answer, start_hub


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[list[RunningHub]]:
    """Two servers on one empty database and one folder of blobs, started at the same moment."""
    folder, url = tmp_path_factory.mktemp("hubs"), postgres.fresh_url()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as threads:
        patch.setenv("PRIME_HUB_SIGNING_SECRET", "the same on both")
        patch.setenv("PRIME_HUB_SECRETS_KEY", "ab" * 32)
        shared = ("--database-url", url, "--blobs", str(folder / "blobs"))
        running = list(threads.map(lambda name: start_hub(folder / name, *shared), ("one", "two")))
    key = max(hub.admin_key for hub in running)
    for hub in running:
        hub.admin_key = key
    yield running
    for hub in running:
        hub.end()


@pytest.fixture
def database_url(postgres: Postgres) -> str:
    """An empty database of the test's own."""
    return postgres.fresh_url()


def at_once(*calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """Make these calls in the same moment."""
    barrier = threading.Barrier(len(calls))

    def make(call: Callable[[], httpx.Response]) -> httpx.Response:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(make, calls))


def gc(hub: RunningHub, database_url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*PRIME, "--output", "json", "hub", "gc", "--data-dir", str(hub.data_dir), "--database-url", database_url]
    return subprocess.run([*command, *options], capture_output=True, text=True, env=dict(os.environ), check=False)


def test_servers_that_start_at_once_make_one_administrator(hubs: list[RunningHub]) -> None:
    assert [(hub.data_dir / "admin.key").exists() for hub in hubs].count(True) == 1
    for hub in hubs:
        with hub.client(hub.admin_key) as client:
            assert answer(client.get("/user/whoami"))["data"]["is_admin"] is True


def test_what_one_server_published_the_other_serves(hubs: list[RunningHub]) -> None:
    key = hubs[0].key_of("shared")
    with hubs[0].client(key) as one, hubs[1].client(key) as two:
        push = Push(one, "shared", "0.1.0")
        assert push.run().is_success
        details = answer(two.get("/environmentshub/shared/shared/@latest"))["data"]
        assert two.get(details["wheel_url"]).content == push.wheel


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_pushes_of_one_version_to_two_servers_exactly_one_wins(hubs: list[RunningHub], attempt: int) -> None:
    key, name = hubs[0].key_of("racer"), f"race-{attempt}"
    pushes = [Push(hub.client(key), name, "0.1.0", code=f"VALUE = {hub.data_dir!r}\n") for hub in hubs]
    responses = at_once(*(push.run for push in pushes))
    winners = [push for push, response in zip(pushes, responses, strict=True) if response.is_success]
    assert len(winners) == 1, [response.text for response in responses]
    (loser,) = [response for response in responses if not response.is_success]
    assert loser.status_code == 409
    assert "already exists" in loser.json()["detail"]
    for hub in hubs:
        with hub.client(key) as client:
            (row,) = answer(client.get(f"/environmentshub/racer/{name}/versions"))["data"]["versions"]
            assert row["sha256"] == winners[0].content_hash
            details = answer(client.get(f"/environmentshub/racer/{name}/@latest"))["data"]
            assert client.get(details["wheel_url"]).content == winners[0].wheel


def test_the_same_push_to_two_servers_at_once_succeeds_on_both(hubs: list[RunningHub]) -> None:
    key = hubs[0].key_of("repeater")
    pushes = [Push(hub.client(key), "same", "0.1.0") for hub in hubs]
    pushes[1].source = pushes[0].source  # an archive that was packed later has another time stamp inside
    assert [response.status_code for response in at_once(*(push.run for push in pushes))] == [200, 200]
    with hubs[0].client(key) as client:
        assert len(answer(client.get("/environmentshub/repeater/same/versions"))["data"]["versions"]) == 1


def test_a_name_in_the_index_of_the_hub_is_claimed_once(hubs: list[RunningHub]) -> None:
    owners = ["claimant-one", "claimant-two"]
    pushes = [
        Push(hub.client(hubs[0].key_of(owner)), "coveted", "0.1.0", code=f"WHO = {owner!r}\n")
        for hub, owner in zip(hubs, owners, strict=True)
    ]
    assert [response.status_code for response in at_once(*(push.run for push in pushes))] == [200, 200]
    pages = [httpx.get(f"{hub.url}/simple/coveted/", trust_env=False).text for hub in hubs]
    assert pages[0] == pages[1]
    assert sum(owner in pages[0] for owner in owners) == 1


def test_samples_that_two_servers_get_at_once_are_kept_once_each(hubs: list[RunningHub]) -> None:
    key = hubs[0].key_of("evaluator")
    clients = [hub.client(key) for hub in hubs]
    evaluation = answer(clients[0].post("/evaluations/", json={"name": "a run"}))["evaluation_id"]
    batches = [[sample(example) for example in range(start, start + 40)] for start in range(0, 200, 20)]

    def push_all(client: httpx.Client, order: list[list[dict[str, Any]]]) -> httpx.Response:
        for batch in order:
            answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": batch}))
        return client.get(f"/evaluations/{evaluation}")

    at_once(lambda: push_all(clients[0], batches), lambda: push_all(clients[1], batches[::-1]))
    page = answer(clients[0].get(f"/evaluations/{evaluation}/samples", params={"limit": 1000}))
    assert page["samples"] == [sample(example) for example in range(220)]
    assert page["total"] == 220


def sample(example: int) -> dict[str, Any]:
    return {"example_id": example, "rollout_number": 0, "reward": 0.5, "text": f"rollout of {example}"}


def test_a_collection_that_needs_the_hub_off_looks_for_servers_everywhere(tmp_path: Path, database_url: str) -> None:
    hub = start_hub(tmp_path / "data", "--database-url", database_url)
    elsewhere = RunningHub(hub.process, hub.url, tmp_path / "elsewhere", "")
    elsewhere.data_dir.mkdir()
    refused = gc(elsewhere, database_url, "--grace-hours", "0")
    assert refused.returncode == 1
    assert "a server runs on this database" in refused.stderr
    assert gc(elsewhere, database_url).returncode == 0
    assert hub.end() == 0
    assert json.loads(gc(hub, database_url, "--grace-hours", "0").stdout)["blobs"] == 0


def test_no_server_starts_while_somebody_is_alone_with_the_database(database_url: str) -> None:
    database = open_database(database_url)
    with database.as_server(alone=True), pytest.raises(NotServing, match="being worked on"), database.as_server():
        pass
    with database.as_server(), database.as_server():
        pass
    database.close()


def test_transactions_of_other_scopes_run_beside_each_other_and_one_without_a_scope_alone(database_url: str) -> None:
    database = open_database(database_url)
    with database.write("evaluation a"), database.write("evaluation b") as session:
        create_user(session, slug="somebody")
    finished: list[str] = []

    def write(scope: str) -> None:
        with database.write(scope):
            finished.append(scope)

    with database.write("evaluation a"):
        others = [threading.Thread(target=write, args=(scope,)) for scope in ("evaluation a", "")]
        for thread in others:
            thread.start()
            thread.join(timeout=0.3)
        assert finished == []
    for thread in others:
        thread.join()
    assert sorted(finished) == ["", "evaluation a"]
    database.close()


def test_a_read_sees_one_moment_and_cannot_write(database_url: str) -> None:
    database = open_database(database_url)
    with database.read() as reading:
        assert reading.scalars(select(User.slug)).all() == []
        with database.write() as writing:
            create_user(writing, slug="somebody")
        assert reading.scalars(select(User.slug)).all() == []
    with database.read() as reading, pytest.raises(DBAPIError, match="read-only transaction"):
        reading.execute(insert(IndexName).values(normalized_name="a", environment_id="b"))
    database.close()


def test_a_value_that_postgresql_cannot_hold_is_refused(hubs: list[RunningHub]) -> None:
    with hubs[0].client() as nobody:
        refused = nobody.get("/environmentshub/", params={"search": "a\0b"})
        assert refused.status_code == 400
        assert "cannot be kept" in refused.json()["detail"]


def test_a_database_that_does_not_answer_is_one_line_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(NotServing, match="cannot use the database") as refused:
        open_database(f"postgresql://prime:secret@/hub?host={tmp_path}")
    assert "secret" not in str(refused.value)
    with pytest.raises(NotServing, match="neither SQLite nor PostgreSQL") as refused:
        Database("mssql://prime:secret@somewhere/hub")
    assert "secret" not in str(refused.value)
