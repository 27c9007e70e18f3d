"""Nodes of a hub: who may offer one, which one is taken, and what becomes of sandboxes when one falls silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.accounts.service import create_user
from hub_server.database import Database, now
from hub_server.errors import Malformed, NotFound
from hub_server.sandbox_node.specification import Level
from hub_server.sandbox_node.wire import Heartbeat, Registration, SandboxFacts
from hub_server.sandboxes import nodes, service
from hub_server.sandboxes.beside import NODE_TOKEN_PURPOSE
from hub_server.sandboxes.bodies import NewSandbox
from hub_server.sandboxes.fleet import Fleet
from hub_server.sandboxes.tables import Sandbox, SandboxNode
from hub_server.secrets.vault import Vault
from hub_server.signing import Signer
from tests.fake_sandbox_node import ENFORCEMENT, FakeNode, create, fake_node
from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


@pytest.fixture
def client(hub: RunningHub, new_user: NewUser) -> Iterator[httpx.Client]:
    """A client of somebody who has nothing yet."""
    with hub.client(new_user()[1]) as client:
        yield client


def status(client: httpx.Client, sandbox: dict[str, Any]) -> str:
    return str(answer(client.get(f"/sandbox/{sandbox['id']}"))["status"])


def test_without_a_node_a_sandbox_is_refused_with_what_to_do(client: httpx.Client) -> None:
    refused = client.post("/sandbox", json={"name": "x", "docker_image": "host"})
    assert refused.status_code == 503
    assert refused.json()["detail"] == (
        "no sandbox node is registered with this hub; start one with `prime sandbox serve`"
    )


def test_a_node_is_listed_with_what_it_gives_and_never_with_its_secret(hub: RunningHub, node: FakeNode) -> None:
    with hub.client(hub.admin_key) as admin:
        response = admin.get("/sandbox-nodes")
        [shown] = [row for row in answer(response)["nodes"] if row["node_id"] == node.node_id]
    assert (shown["name"], shown["url"], shown["level"], shown["capacity"]) == ("a-node", node.url, "container", 100)
    assert node.secret not in response.text
    assert "secret" not in shown


def test_a_node_that_registers_again_keeps_its_id(hub: RunningHub, node: FakeNode, client: httpx.Client) -> None:
    before = node.node_id
    node.register(hub, capacity=7)
    assert node.node_id == before
    assert create(client)["nodeId"] == before


def test_a_node_below_the_level_of_the_hub_is_refused(hub: RunningHub) -> None:
    with fake_node("a-weak-one", level="restricted") as weak, hub.client(hub.admin_key) as admin:
        refused = admin.post("/sandbox-nodes", json={**weak.facts(), "secret": weak.secret})
    assert refused.status_code == 400
    assert "of the level container or better, and a-weak-one gives restricted" in refused.json()["detail"]


@pytest.mark.parametrize(
    "changes", [{"url": "ftp://x"}, {"url": "here"}, {"secret": "short"}, {"secret": "no hex" * 10}, {"level": "best"}]
)
def test_a_node_that_makes_no_sense_is_refused(hub: RunningHub, changes: dict[str, str]) -> None:
    odd = FakeNode("odd", "http://127.0.0.1:1")
    with hub.client(hub.admin_key) as admin:
        assert admin.post("/sandbox-nodes", json={**odd.facts(), "secret": odd.secret, **changes}).status_code in (
            400,
            422,
        )


def test_the_node_beside_a_hub_registers_with_a_token_for_just_that(hub: RunningHub) -> None:
    secret = (hub.data_dir / "signing.key").read_text().strip().encode()
    own, other = FakeNode("beside", "http://127.0.0.1:1"), Signer(secret)
    body = {**own.facts(), "secret": own.secret}
    with hub.client(other.sign(NODE_TOKEN_PURPOSE, {}, valid_s=60)) as beside:
        node_id = answer(beside.post("/sandbox-nodes", json=body))["node_id"]
        assert beside.get("/user/whoami").status_code == 401
        assert beside.delete(f"/sandbox-nodes/{node_id}").is_success
    with hub.client(other.sign("another purpose", {}, valid_s=60)) as forged:
        assert forged.post("/sandbox-nodes", json=body).status_code == 401


def test_a_sandbox_goes_where_its_image_is_and_then_where_room_is(hub: RunningHub, client: httpx.Client) -> None:
    with (
        fake_node("one", capacity=10) as one,
        fake_node("two", capacity=20, images=["host:latest", "tools"]) as two,
    ):
        one.register(hub)
        two.register(hub)
        for _ in range(6):
            create(client)
        assert (len(one.asked), len(two.asked)) == (2, 4)
        create(client, docker_image="tools:latest")
        assert len(two.asked) == 5
        two.beat(hub, draining=True)
        time.sleep(1.1)  # how long what nodes offer is believed
        for _ in range(5):
            create(client)
        assert (len(one.asked), len(two.asked)) == (7, 5)
        one.leave(hub)
        two.leave(hub)


def test_a_node_that_does_not_answer_is_passed_over(hub: RunningHub, client: httpx.Client) -> None:
    with fake_node("deaf", capacity=1000) as deaf, fake_node("well", capacity=2) as well:
        deaf.register(hub)
        well.register(hub)
        deaf.is_silent = True
        made = create(client)
        assert made["nodeId"] == well.node_id
        well.is_silent = True
        refused = client.post("/sandbox", json={"name": "x", "docker_image": "host"})
        assert refused.status_code == 503
        assert "does not answer" in refused.json()["detail"] or "answers with 502" in refused.json()["detail"]
        deaf.leave(hub)
        well.leave(hub)


def test_a_level_that_no_node_gives_is_refused(client: httpx.Client, node: FakeNode) -> None:
    body = {"name": "x", "docker_image": "host", "advanced_configs": {"min_level": "gvisor"}}
    refused = client.post("/sandbox", json=body)
    assert refused.status_code == 400
    assert refused.json()["detail"] == (
        "no sandbox node of this hub gives the level gvisor; there are a-node (container)"
    )
    assert create(client, advanced_configs={"min_level": "container", "other": 1})["advancedConfigs"]["other"] == 1


def test_an_architecture_that_no_node_has_is_refused(client: httpx.Client, node: FakeNode) -> None:
    refused = client.post("/sandbox", json={"name": "x", "docker_image": "host", "arch": "arm64"})
    assert refused.status_code == 400
    assert "no sandbox node of this hub is of the architecture arm64; there is amd64" in refused.json()["detail"]
    assert create(client, arch="amd64")["status"] == "RUNNING"


def test_what_a_node_cannot_enforce_is_refused_with_its_words(client: httpx.Client, node: FakeNode) -> None:
    refused = client.post("/sandbox", json={"name": "x", "docker_image": "host", "cpu_cores": 1000})
    assert refused.status_code == 400
    assert refused.json()["detail"] == "this node has 2 cores; ask for fewer"


def test_events_are_taken_once_and_an_end_is_an_end(hub: RunningHub, client: httpx.Client, node: FakeNode) -> None:
    made = create(client)
    node.finish(made["id"], "TIMEOUT", "its time was up")
    node.beat(hub, made["id"])
    first = answer(client.get(f"/sandbox/{made['id']}"))
    assert (first["status"], first["errorType"]) == ("TIMEOUT", "TIMEOUT")
    node.finish(made["id"], "OOM_KILLED", "another story")
    node.beat(hub, made["id"])
    assert answer(client.get(f"/sandbox/{made['id']}")) == first


def test_a_node_is_told_of_sandboxes_that_were_deleted_while_it_was_silent(
    hub: RunningHub, client: httpx.Client, node: FakeNode
) -> None:
    made = create(client)
    node.is_silent = True
    answer(client.delete(f"/sandbox/{made['id']}"))
    assert status(client, made) == "TERMINATED"
    node.is_silent = False
    assert node.beat(hub) == {"unknown": [made["id"]]}


def test_a_heartbeat_of_a_node_that_left_makes_it_register_again(hub: RunningHub, node: FakeNode) -> None:
    with hub.client(hub.admin_key) as admin:
        answer(admin.delete(f"/sandbox-nodes/{node.node_id}"))
        beat = {"node": node.facts(), "sandboxes": {}, "events": []}
        assert admin.post(f"/sandbox-nodes/{node.node_id}/heartbeat", json=beat).status_code == 404
        assert admin.delete(f"/sandbox-nodes/{node.node_id}").status_code == 404


def test_the_sandboxes_of_a_node_that_leaves_end_with_it(hub: RunningHub, client: httpx.Client, node: FakeNode) -> None:
    made = create(client)
    node.leave(hub)
    ended = answer(client.get(f"/sandbox/{made['id']}"))
    assert (ended["status"], ended["terminationReason"]) == ("TERMINATED", "its node was stopped")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    """A database with a user and a node, without a server."""
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    yield Rows(database)
    database.close()


class Rows:
    """A database with a user and a node."""

    def __init__(self, database: Database) -> None:
        self.database, self.vault, self.fake = database, Vault(bytes(32)), FakeNode("n", "http://127.0.0.1:1")
        self.strays = nodes.Strays()
        with database.write() as session:
            self.user = create_user(session, slug="somebody")
        self.register()

    def register(self) -> None:
        """Let the node register."""
        offered = Registration.model_validate({**self.fake.facts(), "secret": self.fake.secret})
        with self.database.write() as session:
            self.node_id = nodes.register(session, self.vault, offered, Level.CONTAINER).id

    def move(self, url: str) -> None:
        """Let the node have another address."""
        self.fake.url = url
        self.register()

    def add(self, name: str, state: str = "running", age: timedelta = timedelta(0)) -> None:
        """Add a sandbox that the node made a while ago."""
        new = NewSandbox(name=name, docker_image="host")
        facts = SandboxFacts.model_validate({"sandbox_id": name, "state": state, "enforcement": ENFORCEMENT})
        with self.database.write() as session:
            service.add(session, new, facts, owner_id=self.user.id, user_id=self.user.id, node_id=self.node_id)
            session.get_one(Sandbox, name).updated_at = now() - age

    def beat(self, **sandboxes: str) -> nodes.Told:
        """Hear that the node has these sandboxes."""
        beat = Heartbeat.model_validate({"node": self.fake.facts(), "sandboxes": sandboxes, "events": []})
        return nodes.take_heartbeat(self.database, self.vault, self.strays, self.node_id, beat, Level.CONTAINER)

    def hear_last(self, age: timedelta) -> None:
        """Let the node have been silent for a while."""
        with self.database.write() as session:
            session.get_one(SandboxNode, self.node_id).last_seen_at = now() - age

    def status(self, name: str) -> tuple[str, str | None]:
        """Return how a sandbox stands, and why."""
        with self.database.read() as session:
            row = session.get_one(Sandbox, name)
            return row.status, row.error_message


def test_what_a_node_does_not_report_is_asked_after_once_it_had_time(rows: Rows) -> None:
    long_ago = timedelta(minutes=1)
    rows.add("fresh")
    rows.add("known", age=long_ago)
    rows.add("missed", age=long_ago)
    rows.add("waits", "pending", age=long_ago)
    rows.add("begun", "pending", age=long_ago)
    told = rows.beat(known="running", waits="pending", begun="running")
    assert sorted(told.in_doubt) == ["begun", "missed"]
    assert told.unknown == []


def test_a_sandbox_without_a_row_is_left_alone_until_its_row_had_time_to_come(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows.beat(stray="running").unknown == []
    assert rows.beat(stray="running").unknown == []
    rows.strays.since["stray"] -= 31
    assert rows.beat(stray="running").unknown == ["stray"]
    rows.add("stray")
    assert rows.beat(stray="running").unknown == []


async def test_the_sandboxes_of_a_silent_node_fail_once_it_does_not_answer(rows: Rows) -> None:
    fleet = Fleet(rows.database, rows.vault)
    with fake_node("n", secret=rows.fake.secret) as answering:
        rows.move(answering.url)
        rows.add("running")
        rows.add("ended", "ended")
        rows.hear_last(timedelta(seconds=31))
        await fleet.look_for_silent_nodes()
        assert rows.status("running") == ("RUNNING", None), "its signs of life are late, and it is there"
    rows.hear_last(timedelta(seconds=29))
    await fleet.look_for_silent_nodes()
    assert rows.status("running") == ("RUNNING", None)
    rows.hear_last(timedelta(seconds=31))
    await fleet.look_for_silent_nodes()
    assert rows.status("running") == ("ERROR", "its node was lost: it does not answer any more")
    with pytest.raises(NotFound, match="register again"):
        rows.beat(running="running")
    rows.register()
    assert rows.beat(running="running").unknown == ["running"], "the client was told that it is lost"
    fleet.client.close()


def test_heartbeats_without_news_are_written_down_now_and_then_only(rows: Rows) -> None:
    rows.hear_last(timedelta(seconds=5))
    with rows.database.read() as session:
        before = session.get_one(SandboxNode, rows.node_id).last_seen_at
    rows.beat()
    with rows.database.read() as session:
        assert session.get_one(SandboxNode, rows.node_id).last_seen_at == before
    rows.hear_last(timedelta(seconds=11))
    rows.beat()
    with rows.database.read() as session:
        assert session.get_one(SandboxNode, rows.node_id).last_seen_at > before


def test_a_node_whose_secret_no_key_opens_registers_again(rows: Rows) -> None:
    rows.vault = Vault(b"\x01" * 32)
    with pytest.raises(NotFound, match="register again"):
        rows.beat()


def test_a_node_whose_level_fell_is_refused(rows: Rows) -> None:
    rows.fake.level = "restricted"
    with pytest.raises(Malformed, match="gives restricted"):
        rows.beat()
