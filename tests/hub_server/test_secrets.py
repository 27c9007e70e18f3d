"""Secrets and variables: who may, what is refused, and that a value never comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
VALUE = "sk-the-very-secret-value-4711"


@pytest.fixture
def client(hub: RunningHub, new_user: NewUser) -> Iterator[httpx.Client]:
    """A client of somebody who has nothing yet."""
    with hub.client(new_user()[1]) as client:
        yield client


def environment(client: httpx.Client, name: str = "sums") -> str:
    """Make an environment of the client's and return its id."""
    data: dict[str, Any] = answer(client.post("/environmentshub/resolve", json={"name": name}))["data"]
    return str(data["id"])


def listed(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    rows = answer(client.get(path))["data"]
    assert isinstance(rows, list)
    return rows


def test_a_secret_is_added_listed_changed_and_deleted(client: httpx.Client) -> None:
    added = answer(client.post("/secrets/", json={"name": "API_KEY", "value": VALUE, "description": "for tests"}))[
        "data"
    ]
    assert added.keys() == {"id", "name", "description", "isFile", "createdAt", "updatedAt"}
    assert listed(client, "/secrets/") == [added]
    assert listed(client, "/secrets") == [added]
    assert answer(client.get(f"/secrets/{added['id']}"))["data"] == added
    changed = answer(client.patch(f"/secrets/{added['id']}", json={"name": "OTHER_KEY"}))["data"]
    assert (changed["name"], changed["description"]) == ("OTHER_KEY", "for tests")
    assert changed["updatedAt"] >= added["updatedAt"]
    assert (
        answer(client.patch(f"/secrets/{added['id']}", json={"value": "x", "description": ""}))["data"]["description"]
        is None
    )
    assert client.delete(f"/secrets/{added['id']}").is_success
    assert listed(client, "/secrets/") == []
    assert client.get(f"/secrets/{added['id']}").status_code == 404


def test_an_environment_has_secrets_of_its_own_linked_ones_and_variables(client: httpx.Client) -> None:
    home = f"/environmentshub/{environment(client)}"
    mine = answer(client.post(f"{home}/secrets", json={"name": "MINE", "value": VALUE}))["data"]
    shared = answer(client.post("/secrets/", json={"name": "SHARED", "value": VALUE}))["data"]
    link = answer(client.post(f"{home}/secrets/link/{shared['id']}", json={}))["data"]
    assert link.keys() == {"id", "secretId", "secretName", "environmentId", "createdAt"}
    assert (link["secretId"], link["secretName"]) == (shared["id"], "SHARED")
    assert answer(client.post(f"{home}/secrets/link/{shared['id']}"))["data"] == link
    rows = listed(client, f"{home}/secrets/")
    assert [(row["id"], row["name"], row["source"]) for row in rows] == [
        (mine["id"], "MINE", "environment"),
        (shared["id"], "SHARED", "global"),
    ]
    assert answer(client.patch(f"{home}/secrets/{mine['id']}", json={"description": "d"}))["data"]["description"] == "d"
    assert client.delete(f"{home}/secrets/link/{shared['id']}").is_success
    assert client.delete(f"{home}/secrets/{mine['id']}").is_success
    assert listed(client, f"{home}/secrets") == []
    assert [row["name"] for row in listed(client, "/secrets")] == ["SHARED"]
    variable = answer(client.post(f"{home}/variables", json={"name": "LEVEL", "value": "3", "description": "how"}))[
        "data"
    ]
    assert variable["value"] == "3"
    changed = answer(client.patch(f"{home}/variables/{variable['id']}", json={"value": "4"}))["data"]
    assert listed(client, f"{home}/variables/") == [changed]
    assert (changed["value"], changed["description"]) == ("4", "how")
    assert client.delete(f"{home}/variables/{variable['id']}").is_success
    assert listed(client, f"{home}/variables") == []


def test_deleting_a_linked_secret_takes_it_from_its_environments(client: httpx.Client) -> None:
    home = f"/environmentshub/{environment(client)}"
    shared = answer(client.post("/secrets/", json={"name": "SHARED", "value": VALUE}))["data"]["id"]
    answer(client.post(f"{home}/secrets/link/{shared}", json={}))
    assert client.delete(f"/secrets/{shared}").is_success
    assert listed(client, f"{home}/secrets") == []


def test_an_environment_that_is_deleted_loses_its_secrets_for_good(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        home = f"/environmentshub/{environment(client)}"
        shared = answer(client.post("/secrets/", json={"name": "SHARED", "value": VALUE}))["data"]["id"]
        answer(client.post(f"{home}/secrets/link/{shared}", json={}))
        answer(client.post(f"{home}/secrets", json={"name": "MINE", "value": VALUE}))
        answer(client.post(f"{home}/variables", json={"name": "MINE", "value": VALUE}))
        answer(client.delete(f"/environmentshub/{slug}/sums"))
        home = f"/environmentshub/{environment(client)}"
        assert listed(client, f"{home}/secrets") == listed(client, f"{home}/variables") == []
        assert [row["name"] for row in listed(client, "/secrets")] == ["SHARED"]


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        ({"value": VALUE}, ["body", "name"], "Field required"),
        ({"name": "lower", "value": VALUE}, ["body", "name"], "^[A-Z][A-Z0-9_]*$"),
        ({"name": "A-B", "value": VALUE}, ["body", "name"], "^[A-Z][A-Z0-9_]*$"),
        ({"name": "A" * 101, "value": VALUE}, ["body", "name"], "at most 100"),
        ({"name": "A"}, ["body", "value"], "Field required"),
        ({"name": "A", "value": ""}, ["body", "value"], "it has 0 bytes; 1 to 65536 are taken"),
        ({"name": "A", "value": "é" * 32769}, ["body", "value"], "it has 65538 bytes; 1 to 65536 are taken"),
        ({"name": "A", "value": VALUE + "\0"}, ["body", "value"], "it holds a zero byte"),
        ({"name": "A", "value": [VALUE]}, ["body", "value"], "valid string"),
        ({"name": "A", "value": VALUE, "description": "d\0"}, ["body", "description"], "it holds a zero byte"),
        ({"name": "A", "value": VALUE, "description": "d" * 2001}, ["body", "description"], "at most 2000"),
    ],
)  # fmt: skip
def test_what_no_environment_variable_can_hold_is_refused_without_repeating_it(
    client: httpx.Client, body: dict[str, Any], place: list[str], words: str
) -> None:
    home = f"/environmentshub/{environment(client)}"
    for path in ("/secrets/", f"{home}/secrets", f"{home}/variables"):
        refused = client.post(path, json=body)
        assert refused.status_code == 422
        problem = refused.json()["detail"][0]
        assert problem["loc"] == place
        assert words in problem["msg"]
        assert VALUE not in refused.text
        assert listed(client, path) == []


def test_halves_of_characters_are_refused(client: httpx.Client) -> None:
    for text in (r'{"name": "A", "value": "\ud800"}', r'{"name": "A", "value": "v", "description": "\ud800"}'):
        refused = client.post("/secrets", content=text, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["loc"] == ["body", "value" if "description" not in text else "description"]


def test_a_file_comes_in_base64_and_stays_so(client: httpx.Client) -> None:
    refused = client.post("/secrets", json={"name": "CERT", "value": VALUE, "isFile": True})
    assert refused.status_code == 422
    assert "must be the content of a file in base64" in refused.text
    assert VALUE not in refused.text
    added = answer(client.post("/secrets", json={"name": "CERT", "value": "AAH/", "isFile": True}))["data"]
    assert added["isFile"] is True
    refused = client.patch(f"/secrets/{added['id']}", json={"value": VALUE})
    assert (refused.status_code, refused.json()["detail"]) == (400, "CERT is a file: its value must be in base64")
    assert answer(client.get(f"/secrets/{added['id']}"))["data"] == added


def test_a_name_is_taken_once_in_each_place(client: httpx.Client) -> None:
    home = f"/environmentshub/{environment(client)}"
    for path in ("/secrets", f"{home}/secrets", f"{home}/variables"):
        first = answer(client.post(path, json={"name": "SAME", "value": "1"}))["data"]
        again = client.post(path, json={"name": "SAME", "value": "2"})
        assert again.status_code == 409
        assert again.json()["detail"].startswith("the name SAME is already taken here")
        other = answer(client.post(path, json={"name": "OTHER", "value": "1"}))["data"]
        renamed = client.patch(f"{path}/{other['id']}", json={"name": "SAME", "value": "2"})
        assert renamed.status_code == 409
        assert [row["id"] for row in listed(client, path)] == [other["id"], first["id"]]
    assert {row["value"] for row in listed(client, f"{home}/variables")} == {"1"}


def test_five_hundred_are_the_most_in_one_place(client: httpx.Client) -> None:
    home = f"/environmentshub/{environment(client)}"
    for number in range(500):
        assert client.post(f"{home}/variables", json={"name": f"V_{number}", "value": "1"}).is_success
    refused = client.post(f"{home}/variables", json={"name": "ONE_MORE", "value": "1"})
    assert refused.status_code == 409
    assert "500 are the most" in refused.json()["detail"]
    assert len(listed(client, f"{home}/variables")) == 500


def test_a_stranger_sees_and_changes_nothing(hub: RunningHub, new_user: NewUser, client: httpx.Client) -> None:
    push = Push(client, "open", "0.1.0")
    assert push.run().is_success
    home = f"/environmentshub/{push.environment_id}"
    mine = answer(client.post("/secrets", json={"name": "MINE", "value": VALUE}))["data"]
    of_it = answer(client.post(f"{home}/secrets", json={"name": "OF_IT", "value": VALUE}))["data"]["id"]
    variable = answer(client.post(f"{home}/variables", json={"name": "LEVEL", "value": "3"}))["data"]["id"]
    before = [listed(client, path) for path in ("/secrets", f"{home}/secrets", f"{home}/variables")]
    change = {"value": "theirs", "name": "THEIRS"}
    with hub.client(new_user()[1]) as stranger:
        assert stranger.get(f"/secrets/{mine['id']}").status_code == 404
        assert stranger.patch(f"/secrets/{mine['id']}", json=change).status_code == 404
        assert stranger.delete(f"/secrets/{mine['id']}").status_code == 404
        assert listed(stranger, "/secrets") == []
        for path in (f"{home}/secrets", f"{home}/variables"):
            assert stranger.get(path).status_code == 403, "a public environment keeps its secrets to its writers"
            assert stranger.post(path, json=change).status_code == 403
        for path in (f"{home}/secrets/{of_it}", f"{home}/variables/{variable}"):
            assert stranger.patch(path, json=change).status_code == 403
            assert stranger.delete(path).status_code == 403
        theirs = f"/environmentshub/{environment(stranger)}"
        linked = stranger.post(f"{theirs}/secrets/link/{mine['id']}", json={})
        assert (linked.status_code, linked.json()["detail"]) == (404, f"secret {mine['id']} not found on this hub")
        for path in (f"{theirs}/secrets/{of_it}", f"{theirs}/variables/{variable}"):
            assert stranger.patch(path, json=change).status_code == 404
            assert stranger.delete(path).status_code == 404
    assert [listed(client, path) for path in ("/secrets", f"{home}/secrets", f"{home}/variables")] == before


def test_what_is_not_linked_or_not_the_environments_own_is_not_found(client: httpx.Client) -> None:
    home = f"/environmentshub/{environment(client)}"
    shared = answer(client.post("/secrets", json={"name": "SHARED", "value": VALUE}))["data"]["id"]
    assert client.delete(f"{home}/secrets/link/{shared}").status_code == 404
    answer(client.post(f"{home}/secrets/link/{shared}"))
    refused = client.patch(f"{home}/secrets/{shared}", json={"value": "changed through the environment"})
    assert refused.status_code == 404
    assert "not found among the own secrets of" in refused.json()["detail"]
    assert client.delete(f"{home}/secrets/{shared}").status_code == 404
    own = answer(client.post(f"{home}/secrets", json={"name": "OWN", "value": VALUE}))["data"]["id"]
    assert client.get(f"/secrets/{own}").status_code == 404
    assert client.post(f"{home}/secrets/link/{own}").status_code == 404


def test_the_secrets_of_a_team_are_kept_by_its_members(hub: RunningHub, new_user: NewUser) -> None:
    (owner_slug, owner_key), (member_slug, member_key), (reader_slug, reader_key) = new_user(), new_user(), new_user()
    with hub.client(owner_key) as owner, hub.client(member_key) as member, hub.client(reader_key) as reader:
        team = answer(owner.post("/teams", json={"slug": f"{owner_slug}-lab"}))["data"]["teamId"]
        for slug, role in ((member_slug, "member"), (reader_slug, "reader")):
            answer(owner.put(f"/teams/{team}/members/{slug}", json={"role": role}))
        made = answer(member.post("/secrets/", json={"name": "SHARED", "value": VALUE, "teamId": team}))["data"]
        assert answer(owner.get("/secrets/", params={"teamId": team}))["data"] == [made]
        assert listed(member, "/secrets/") == []
        sums = answer(member.post("/environmentshub/resolve", json={"name": "sums", "team_id": team}))["data"]["id"]
        assert member.post(f"/environmentshub/{sums}/secrets/link/{made['id']}").is_success
        mine = answer(member.post("/secrets", json={"name": "MINE", "value": VALUE}))["data"]["id"]
        refused = member.post(f"/environmentshub/{sums}/secrets/link/{mine}")
        assert refused.status_code == 404
        assert "only an owner's secrets can be linked to their environments" in refused.json()["detail"]
        assert reader.get("/secrets", params={"teamId": team}).status_code == 403
        assert reader.get(f"/secrets/{made['id']}").status_code == 404
        assert reader.get(f"/environmentshub/{sums}/secrets").status_code == 403
        assert answer(owner.patch(f"/secrets/{made['id']}", json={"name": "RENAMED"}))["data"]["name"] == "RENAMED"
        assert [row["name"] for row in listed(owner, f"/environmentshub/{sums}/secrets")] == ["RENAMED"]
        events = answer(owner.get(f"/teams/{team}/audit"))
        assert {"secret.add", "secret.link", "secret.change"} <= {event["action"] for event in events["data"]}
        assert VALUE not in str(events)


def test_secrets_of_a_team_that_is_not_there_are_not_found(client: httpx.Client) -> None:
    assert client.get("/secrets", params={"teamId": "cnoteam"}).status_code == 404
    refused = client.post("/secrets", json={"name": "A", "value": VALUE, "teamId": "cnoteam"})
    assert (refused.status_code, refused.json()["detail"]) == (404, "team 'cnoteam' not found on this hub")
    assert listed(client, "/secrets") == []
