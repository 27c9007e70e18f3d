"""The platform API of sandboxes: the published names, who owns what, and what becomes of a sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.sandboxes.tokens import ForAnother, check_token
from tests.fake_sandbox_node import FakeNode, create, fake_node
from tests.running_hub import RunningHub, answer, start_hub

both_databases = pytest.mark.both_databases
NewUser = Callable[[], tuple[str, str]]
# What prime-sandboxes 0.5.1 must find in a sandbox.
REQUIRED = {
    "id", "name", "dockerImage", "cpuCores", "memoryGB", "diskSizeGB", "diskMountPath", "gpuCount", "status",
    "timeoutMinutes", "createdAt", "updatedAt",
}  # fmt: skip
OPTIONAL = {
    "startCommand", "gpuType", "vm", "networkAllowlist", "networkDenylist", "idleTimeoutMinutes", "terminationReason",
    "environmentVars", "secrets", "advancedConfigs", "labels", "startedAt", "terminatedAt", "exitCode", "errorType",
    "errorMessage", "userId", "teamId", "region", "pendingImageBuildId",
}  # fmt: skip


@pytest.fixture
def client(hub: RunningHub, new_user: NewUser) -> Iterator[httpx.Client]:
    """A client of somebody who has nothing yet."""
    with hub.client(new_user()[1]) as client:
        yield client


def details(client: httpx.Client, sandbox: dict[str, Any]) -> dict[str, Any]:
    return answer(client.get(f"/sandbox/{sandbox['id']}"))


@both_databases
def test_a_sandbox_speaks_with_the_published_names(client: httpx.Client, node: FakeNode) -> None:
    made = create(client, cpu_cores=2, memory_gb=0.5, disk_size_gb=3, vm=True, labels=["a", "b", "a"])
    auth = made.pop("gatewayAuth")
    assert made.keys() >= REQUIRED | OPTIONAL
    assert (made["status"], made["dockerImage"], made["vm"], made["labels"]) == ("RUNNING", "host", True, ["a", "b"])
    assert (made["cpuCores"], made["memoryGB"], made["diskSizeGB"], made["gpuCount"]) == (2, 0.5, 3, 0)
    assert made["enforcement"]["level"] == "container"
    assert details(client, made) == made
    [asked] = node.asked
    assert asked["sandbox_id"] == made["id"]
    assert (asked["limits"]["cpu_cores"], asked["limits"]["memory_bytes"]) == (2, 2**29)
    assert asked["lifetime_s"] == 3600
    assert asked["egress"] is None
    assert auth.keys() == {"gateway_url", "user_ns", "job_id", "token", "expires_at", "is_vm", "sandbox_id"}
    assert (auth["gateway_url"], auth["user_ns"], auth["job_id"]) == (node.url, "sandboxes", made["id"])
    again = answer(client.post(f"/sandbox/{made['id']}/auth", headers={"Content-Type": "application/json"}))
    assert again.keys() == auth.keys()
    assert again["is_vm"] is True
    assert 3000 < (datetime.fromisoformat(again["expires_at"]) - datetime.now(UTC)).total_seconds() <= 3600
    check_token(bytes.fromhex(node.secret), again["token"], made["id"])
    with pytest.raises(ForAnother):
        check_token(bytes.fromhex(node.secret), again["token"], "another")


def test_a_deleted_sandbox_can_be_read_and_is_gone_from_its_node(client: httpx.Client, node: FakeNode) -> None:
    made = create(client)
    assert client.delete(f"/sandbox/{made['id']}").is_success
    ended = details(client, made)
    assert (ended["status"], ended["terminationReason"]) == ("TERMINATED", "it was deleted")
    assert ended["terminatedAt"] >= ended["startedAt"]
    assert node.sandboxes[made["id"]]["state"] == "ended"
    assert client.delete(f"/sandbox/{made['id']}").is_success
    assert details(client, made) == ended
    assert answer(client.get(f"/sandbox/{made['id']}/error-context"))["status"] == "TERMINATED"
    # The gateway tells a client of such a sandbox better than a refusal here would.
    assert answer(client.post(f"/sandbox/{made['id']}/auth"))["job_id"] == made["id"]


def test_a_start_command_that_is_one_text_is_never_answered(client: httpx.Client, node: FakeNode) -> None:
    assert create(client, start_command="tail -f /dev/null")["startCommand"] is None
    assert node.asked[-1]["start_command"] == "tail -f /dev/null"
    command = {"executable": "python3", "args": ["-c", "print(1)"]}
    made = create(client, start_command=command)
    assert made["startCommand"] == details(client, made)["startCommand"] == command
    assert node.asked[-1]["start_command"] == ["python3", "-c", "print(1)"]


@both_databases
def test_variables_reach_the_sandbox_and_values_of_secrets_come_back_from_nowhere(
    client: httpx.Client, node: FakeNode
) -> None:
    made = create(client, environment_vars={"A": "1", "B": "2"}, secrets={"B": "sk-4711", "C": "sk-4712"})
    assert node.asked[-1]["env"] == {"A": "1", "B": "sk-4711", "C": "sk-4712"}
    assert made["environmentVars"] == {"A": "1", "B": "2"}
    assert made["secrets"].keys() == {"B", "C"}
    assert "sk-47" not in client.get(f"/sandbox/{made['id']}").text


@pytest.mark.parametrize(("minutes", "lifetime_s"), [(5, 300), (-1, None)])
def test_a_negative_lifetime_has_no_end(
    client: httpx.Client, node: FakeNode, minutes: int, lifetime_s: int | None
) -> None:
    made = create(client, timeout_minutes=minutes, idle_timeout_minutes=2)
    assert (made["timeoutMinutes"], made["idleTimeoutMinutes"]) == (minutes, 2)
    assert (node.asked[-1]["lifetime_s"], node.asked[-1]["idle_s"]) == (lifetime_s, 120)


def test_the_same_request_again_makes_no_second_sandbox(client: httpx.Client, node: FakeNode) -> None:
    first = create(client, idempotency_key="once")
    again = create(client, idempotency_key="once", name="another name")
    assert again.pop("gatewayAuth")["job_id"] == first["id"]
    assert {**first, "gatewayAuth": None} == {**again, "gatewayAuth": None}
    assert len(node.asked) == 1


@both_databases
def test_of_many_requests_with_one_key_at_once_one_makes_the_sandbox(client: httpx.Client, node: FakeNode) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: create(client, idempotency_key="race")["id"], range(8)))
    assert len(set(made)) == 1
    alive = [name for name, one in node.sandboxes.items() if one["state"] != "ended"]
    assert alive == [made[0]], "what the slower requests made is ended again"
    assert answer(client.get("/sandbox"))["total"] == 1


def test_one_key_of_two_users_is_two_keys(
    hub: RunningHub, client: httpx.Client, node: FakeNode, new_user: NewUser
) -> None:
    with hub.client(new_user()[1]) as other:
        assert create(client, idempotency_key="mine")["id"] != create(other, idempotency_key="mine")["id"]


@both_databases
def test_a_list_is_narrowed_by_status_and_by_all_of_its_labels(client: httpx.Client, node: FakeNode) -> None:
    first, second = create(client, labels=["run", "one"]), create(client, labels=["run"])
    third = create(client)
    answer(client.delete(f"/sandbox/{second['id']}"))

    def listed(**params: Any) -> list[str]:
        return [row["id"] for row in answer(client.get("/sandbox", params=params))["sandboxes"]]

    assert listed() == [third["id"], second["id"], first["id"]]
    assert listed(labels="run") == [second["id"], first["id"]]
    assert listed(labels=["run", "one"]) == [first["id"]]
    assert listed(labels="ru") == []
    assert listed(status="TERMINATED") == [second["id"]]
    assert listed(is_active="true") == [third["id"], first["id"]]
    assert listed(is_active="false") == listed()
    page = answer(client.get("/sandbox", params={"page": 2, "per_page": 2}))
    assert [row["id"] for row in page["sandboxes"]] == [first["id"]]
    assert (page["total"], page["page"], page["perPage"], page["hasNext"]) == (3, 2, 2, False)
    assert answer(client.get("/sandbox", params={"per_page": 2}))["hasNext"] is True


@both_databases
def test_a_sandbox_of_a_team_is_for_the_team(hub: RunningHub, node: FakeNode, new_user: NewUser) -> None:
    (owner_slug, owner_key), (member_slug, member_key), (reader_slug, reader_key) = (new_user() for _ in range(3))
    with hub.client(owner_key) as owner, hub.client(member_key) as member, hub.client(reader_key) as reader:
        team = answer(owner.post("/teams", json={"slug": f"team-of-{owner_slug}"[:30]}))["data"]["teamId"]
        answer(owner.put(f"/teams/{team}/members/{member_slug}", json={"role": "member"}))
        answer(owner.put(f"/teams/{team}/members/{reader_slug}", json={"role": "reader"}))
        made, own = create(member, team_id=team, labels=["x"]), create(member, labels=["x"])
        assert made["teamId"] == team
        assert own["teamId"] is None
        assert details(reader, made)["id"] == made["id"]
        assert reader.get(f"/sandbox/{own['id']}").status_code == 404
        assert reader.post(f"/sandbox/{made['id']}/auth").status_code == 403
        assert reader.post("/sandbox", json={"name": "x", "docker_image": "host", "team_id": team}).status_code == 403
        assert [row["id"] for row in answer(owner.get(f"/sandbox?team_id={team}"))["sandboxes"]] == [made["id"]]
        assert answer(owner.get(f"/sandbox?team_id={team}&user_id={own['userId']}"))["total"] == 1
        assert answer(owner.get(f"/sandbox?team_id={team}&user_id=nobody"))["total"] == 0
        told = answer(reader.request("DELETE", "/sandbox", json={"sandbox_ids": [made["id"]]}))
        assert told["failed"] == [
            {"sandbox_id": made["id"], "error": "you may only look at the sandboxes of this team"}
        ]
        by_label = {"labels": ["x"], "team_id": team}
        assert answer(owner.request("DELETE", "/sandbox", json=by_label))["succeeded"] == []
        told = answer(owner.request("DELETE", "/sandbox", json={**by_label, "all_users": True}))
        assert told["succeeded"] == [made["id"]]
        assert details(member, own)["status"] == "RUNNING"


@both_databases
def test_many_are_deleted_at_once_and_strangers_ones_are_not_there(
    hub: RunningHub, client: httpx.Client, node: FakeNode, new_user: NewUser
) -> None:
    with hub.client(new_user()[1]) as other:
        foreign = create(other)["id"]
        mine = [create(client, labels=["old"])["id"] for _ in range(3)]
        told = answer(client.request("DELETE", "/sandbox", json={"sandbox_ids": [mine[0], foreign]}))
        assert told["succeeded"] == [mine[0]]
        assert told["failed"] == [{"sandbox_id": foreign, "error": "not found on this hub"}]
        told = answer(client.request("DELETE", "/sandbox", json={"labels": ["old"]}))
        assert sorted(told["succeeded"]) == sorted(mine[1:])
        assert {node.sandboxes[each]["state"] for each in mine} == {"ended"}
        assert answer(other.get(f"/sandbox/{foreign}"))["status"] == "RUNNING"


def test_statuses_come_in_batches(hub: RunningHub, client: httpx.Client, node: FakeNode, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as other:
        foreign = create(other)["id"]
    made = [create(client)["id"] for _ in range(2)]
    asked = {"sandbox_ids": [*made, foreign, "nothing"]}
    told = answer(client.post("/sandbox/status:batchGet", json=asked))
    assert [(row["sandbox_id"], row["status"]) for row in told["statuses"]] == [(each, "RUNNING") for each in made]
    assert told["statuses"][0].keys() == {
        "sandbox_id", "status", "error_type", "error_message", "pending_image_build_id"
    }  # fmt: skip
    assert [(row["sandbox_id"], row["code"]) for row in told["errors"]] == [
        (foreign, "NOT_FOUND"),
        ("nothing", "NOT_FOUND"),
    ]
    assert client.post("/sandbox/status:batchGet", json={"sandbox_ids": ["x"] * 101}).status_code == 422


def test_background_jobs_are_asked_after_in_batches(client: httpx.Client, node: FakeNode) -> None:
    made, ended = create(client)["id"], create(client)["id"]
    answer(client.delete(f"/sandbox/{ended}"))
    jobs = [(made, "0123abcd"), (made, "00000000"), (ended, "0123abcd"), ("nothing", "0123abcd")]
    body = {"jobs": [{"sandbox_id": sandbox, "job_id": job} for sandbox, job in jobs]}
    told = answer(client.post("/sandbox/background-jobs/status:batchGet", json=body))
    assert told["statuses"] == [{"sandbox_id": made, "job_id": "0123abcd", "completed": True, "exit_code": 0}]
    assert {(row["sandbox_id"], row["job_id"], row["code"]) for row in told["errors"]} == {
        (made, "00000000", "NOT_FOUND"), (ended, "0123abcd", "NOT_RUNNING"), ("nothing", "0123abcd", "NOT_FOUND")
    }  # fmt: skip
    node.is_silent = True
    told = answer(client.post("/sandbox/background-jobs/status:batchGet", json={"jobs": body["jobs"][:1]}))
    assert told["errors"][0]["code"] == "RUNTIME_ERROR"


@pytest.mark.parametrize(
    ("kind", "status", "error_type"),
    [
        ("OOM_KILLED", "ERROR", "OOM_KILLED"),
        ("TIMEOUT", "TIMEOUT", "TIMEOUT"),
        ("FAILED", "ERROR", None),
        ("IDLE", "TERMINATED", None),
        ("COMMAND_ENDED", "TERMINATED", None),
    ],
)
def test_why_a_sandbox_ended_is_asked_of_its_node(
    client: httpx.Client, node: FakeNode, kind: str, status: str, error_type: str | None
) -> None:
    made = create(client)["id"]
    node.finish(made, kind, "how it ended", 3)
    context = answer(client.get(f"/sandbox/{made}/error-context"))
    assert (context["status"], context["errorType"], context["error_type"]) == (status, error_type, error_type)
    assert context["errorMessage"] == context["error_message"] == "how it ended"
    ended = answer(client.get(f"/sandbox/{made}"))
    assert (ended["status"], ended["errorType"], ended["exitCode"]) == (status, error_type, 3)
    assert ended["terminationReason"] == "how it ended"


def test_an_image_that_nobody_has_fails_as_such(client: httpx.Client, node: FakeNode) -> None:
    made = create(client, docker_image="no-such:1")
    assert (made["status"], made["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED")
    told = answer(client.post("/sandbox/status:batchGet", json={"sandbox_ids": [made["id"]]}))
    assert told["statuses"][0]["error_type"] == "IMAGE_PULL_FAILED"
    assert "no-such:1" in told["statuses"][0]["error_message"]


@both_databases
def test_a_full_node_lets_sandboxes_wait(hub: RunningHub, client: httpx.Client, node: FakeNode) -> None:
    node.is_full = True
    made = create(client)
    assert (made["status"], made["startedAt"]) == ("PENDING", None)
    node.run(made["id"])
    node.beat(hub, made["id"])
    running = details(client, made)
    assert running["status"] == "RUNNING"
    assert running["startedAt"] is not None
    assert running["enforcement"]["backend"] == "fake"


def test_logs_are_the_nodes_and_nothing_once_that_has_forgotten_them(client: httpx.Client, node: FakeNode) -> None:
    made = create(client)["id"]
    assert answer(client.get(f"/sandbox/{made}/logs")) == {"logs": "line one\n"}
    answer(client.delete(f"/sandbox/{made}"))
    assert answer(client.get(f"/sandbox/{made}/logs")) == {"logs": "line one\n"}
    node.is_silent = True
    assert answer(client.get(f"/sandbox/{made}/logs")) == {"logs": ""}


@both_databases
def test_whom_a_sandbox_may_reach_is_changed_while_it_runs(client: httpx.Client, node: FakeNode) -> None:
    made = create(client, vm=True, network_allowlist=["PyPI.org.", "*.example.com:443", "10.0.0.0/8:5000-5010"])
    allowed = ["pypi.org", "*.example.com:443", "10.0.0.0/8:5000-5010"]
    assert made["networkAllowlist"] == node.asked[-1]["egress"]["allowlist"] == allowed
    path = f"/sandbox/{made['id']}/egress-policy"
    told = answer(client.get(path))
    assert told == {
        "policy": {"allowlist": allowed, "denylist": None}, "generation": 1, "applied_generation": 1, "applied": True
    }  # fmt: skip
    told = answer(client.put(path, json={"allowlist": None, "denylist": []}))
    assert told["policy"] == {"allowlist": None, "denylist": []}
    assert (told["generation"], told["applied"]) == (2, True)
    assert details(client, made)["networkDenylist"] == []
    answer(client.delete(f"/sandbox/{made['id']}"))
    assert answer(client.get(path))["generation"] == 2
    assert client.put(path, json={"allowlist": [], "denylist": None}).status_code == 409


def test_an_operator_says_whom_sandboxes_reach_whose_makers_say_nothing(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data", "--sandboxes-allow", "Index.example.", "--sandboxes-allow", "*.example.com:443")
    try:
        with fake_node() as node, hub.client(hub.admin_key) as client:
            node.register(hub)
            made = create(client)
            assert made["networkAllowlist"] == ["index.example", "*.example.com:443"]
            assert node.asked[-1]["egress"] == {"allowlist": ["index.example", "*.example.com:443"], "denylist": None}
            assert create(client, network_allowlist=[])["networkAllowlist"] == []
            assert create(client, network_denylist=["index.example"])["networkAllowlist"] is None
    finally:
        hub.end()
    with pytest.raises(AssertionError, match=r"--sandboxes-allow: allowlist: .*IPv6"):
        start_hub(tmp_path / "data", "--sandboxes-allow", "::1")


def test_ports_are_exposed_listed_and_closed(client: httpx.Client, node: FakeNode) -> None:
    made, other = create(client)["id"], create(client)["id"]
    exposed = answer(client.post(f"/sandbox/{made}/expose", json={"port": 8000, "name": "web", "protocol": "HTTP"}))
    assert (exposed["port"], exposed["name"], exposed["sandbox_id"], exposed["protocol"]) == (8000, "web", made, "HTTP")
    assert exposed["url"].startswith(node.url)
    assert answer(client.get(f"/sandbox/{made}/expose"))["exposures"] == [exposed]
    assert answer(client.get(f"/sandbox/{other}/expose"))["exposures"] == []
    assert answer(client.get("/sandbox/expose/all"))["exposures"] == [exposed]
    assert client.post(f"/sandbox/{made}/expose", json={"port": 22, "protocol": "TCP"}).status_code == 400
    assert client.delete(f"/sandbox/{made}/expose/nothing").status_code == 404
    assert client.delete(f"/sandbox/{made}/expose/{exposed['exposure_id']}").is_success
    assert answer(client.get(f"/sandbox/{made}/expose"))["exposures"] == []


def test_images_are_those_of_the_nodes(client: httpx.Client, hub: RunningHub, node: FakeNode) -> None:
    node.images = ["host:latest", "registry.example.org:5000/team/tools:v1"]
    node.beat(hub)
    found = answer(client.get("/images"))
    assert [(row["imageName"], row["imageTag"]) for row in found["data"]] == [
        ("host", "latest"),
        ("registry.example.org:5000/team/tools", "v1"),
    ]
    assert found["totalCount"] == 2
    assert answer(client.get("/images?search=TOOLS"))["totalCount"] == 1
    assert answer(client.post("/template/check-docker-image", json={"image": "host"}))["accessible"] is True
    assert answer(client.post("/template/check-docker-image", json={"image": "x"}))["accessible"] is False


def test_sandboxes_are_listed_and_deleted_by_the_hundred(client: httpx.Client, node: FakeNode) -> None:
    started = time.monotonic()
    made = [create(client, labels=["many"])["id"] for _ in range(120)]
    listed = answer(client.get("/sandbox", params={"per_page": 1000, "labels": "many"}))
    assert {row["id"] for row in listed["sandboxes"]} == set(made)
    assert sorted(answer(client.request("DELETE", "/sandbox", json={"sandbox_ids": made}))["succeeded"]) == sorted(made)
    assert time.monotonic() - started < 60
