"""Teams: roles, what they publish together, and the last owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest

from tests.running_hub import Push, RunningHub, answer, make_wheel

NewUser = Callable[[], tuple[str, str]]


@dataclass(frozen=True)
class Team:
    """A team with one user of each role."""

    id: str
    slug: str
    owner: httpx.Client
    member: httpx.Client
    reader: httpx.Client
    slugs: dict[str, str]


@pytest.fixture
def team(hub: RunningHub, new_user: NewUser) -> Team:
    """Make a team of three."""
    users = {role: new_user() for role in ("owner", "member", "reader")}
    clients = {role: hub.client(key) for role, (_, key) in users.items()}
    slug = f"lab-of-{users['owner'][0]}"[:30].strip("-")
    made = answer(clients["owner"].post("/teams", json={"slug": slug, "name": "A lab"}))["data"]
    for role in ("member", "reader"):
        path = f"/teams/{made['teamId']}/members/{users[role][0]}"
        answer(clients["owner"].put(path, json={"role": role}))
    return Team(made["teamId"], slug, *clients.values(), {role: slug for role, (slug, _) in users.items()})


def test_a_team_is_listed_with_the_role_of_whoever_asks(team: Team) -> None:
    listed = answer(team.member.get("/user/teams", params={"offset": 0, "limit": 100}))
    assert listed["total_count"] == 1
    row = listed["data"][0]
    assert (row["teamId"], row["slug"], row["name"], row["role"]) == (team.id, team.slug, "A lab", "member")
    assert len(team.id) == 25
    assert team.id.startswith("c")
    members = answer(team.reader.get(f"/teams/{team.id}/members"))["data"]
    assert {row["userSlug"]: row["role"] for row in members} == {team.slugs[role]: role for role in team.slugs}


def test_teams_and_users_share_their_slugs(team: Team, hub: RunningHub) -> None:
    taken = team.owner.post("/teams", json={"slug": team.slugs["member"]})
    assert taken.status_code == 409
    assert "already taken" in taken.json()["detail"]
    with hub.client(hub.admin_key) as admin:
        assert admin.post("/users", json={"slug": team.slug}).status_code == 409
    assert team.member.patch("/user/slug", json={"slug": team.slug}).status_code == 409


@pytest.mark.parametrize("how", ["team_slug", "team_id", "owner_slug"])
def test_a_member_publishes_for_the_team_and_a_reader_only_reads(team: Team, how: str) -> None:
    push = Push(team.member, f"task-{how.replace('_', '-')}", "0.1.0", visibility="PRIVATE")
    named = {"name": push.name, "visibility": "PRIVATE", how: team.id if how == "team_id" else team.slug}
    data = answer(team.member.post("/environmentshub/resolve", json=named))["data"]
    assert data["owner"]["name"] == team.slug
    push.environment_id = data["id"]
    assert push.send_wheel().is_success
    assert push.send_source().is_success
    path = f"/environmentshub/{team.slug}/{push.name}"
    assert answer(team.reader.get(f"{path}/@latest"))["data"]["semantic_version"] == "0.1.0"
    mine = answer(team.reader.get("/environmentshub/", params={"mine_only": True}))["data"]
    assert push.name in [row["name"] for row in mine]
    refused = team.reader.post("/environmentshub/resolve", json=named)
    assert refused.status_code == 403
    assert refused.json()["detail"] == f"you are a reader of the team '{team.slug}'; this needs a member"
    assert team.reader.put(f"{path}/@latest/yank", json={}).status_code == 403
    assert team.member.delete(path).status_code == 403
    assert team.owner.delete(path).is_success


def test_only_an_owner_of_the_team_changes_who_sees_an_environment(team: Team) -> None:
    push = Push(team.member, "shy", "0.1.0", visibility="PRIVATE", owner=team.slug)
    assert push.run().is_success
    wanted = {"name": "shy", "visibility": "PUBLIC", "owner_slug": team.slug}
    refused = team.member.post("/environmentshub/resolve", json=wanted)
    assert refused.status_code == 403
    assert answer(team.owner.get(f"/environmentshub/{team.slug}/shy/@latest"))["data"]["visibility"] == "PRIVATE"
    assert team.owner.post("/environmentshub/resolve", json=wanted).is_success


def test_who_leaves_a_team_sees_its_private_things_no_longer(team: Team) -> None:
    assert Push(team.owner, "inner", "0.1.0", visibility="PRIVATE", owner=team.slug).run().is_success
    details = answer(team.reader.get(f"/environmentshub/{team.slug}/inner/@latest"))["data"]
    assert team.reader.delete(f"/teams/{team.id}/members/{team.slugs['reader']}").is_success
    assert team.reader.get(f"/environmentshub/{team.slug}/inner/@latest").status_code == 404
    # The token in an index URL is whose it is: it opens what its user may see now.
    page = httpx.get(details["install_index_url"] + "inner/", trust_env=False)
    assert page.status_code == 404


def test_a_team_is_never_left_without_an_owner(team: Team) -> None:
    mine = f"/teams/{team.id}/members/{team.slugs['owner']}"
    for attempt in (team.owner.delete(mine), team.owner.put(mine, json={"role": "member"})):
        assert attempt.status_code == 409
        assert "last owner" in attempt.json()["detail"]
    assert team.owner.put(f"/teams/{team.id}/members/{team.slugs['member']}", json={"role": "owner"}).is_success
    assert team.owner.delete(mine).is_success


def test_a_member_removes_nobody_but_themselves(team: Team) -> None:
    refused = team.member.delete(f"/teams/{team.id}/members/{team.slugs['reader']}")
    assert refused.status_code == 403
    assert team.member.delete(f"/teams/{team.id}/members/{team.slugs['member']}").is_success


def test_a_member_publishes_for_the_team_as_twine_does_and_a_reader_does_not(team: Team, hub: RunningHub) -> None:
    name, wheel = make_wheel("by-form", "0.1.0")
    for client, status in ((team.reader, 403), (team.member, 200)):
        response = httpx.post(
            f"{hub.url}/index/{team.slug}/legacy/",
            data={":action": "file_upload", "filetype": "bdist_wheel"},
            files={"content": (name, wheel)},
            headers={"Authorization": client.headers["Authorization"]},
            trust_env=False,
        )
        assert response.status_code == status, response.text
    assert (
        answer(team.reader.get(f"/environmentshub/{team.slug}/by-form/@latest"))["data"]["owner"]["name"] == team.slug
    )


def test_evaluations_of_a_team_are_seen_by_its_readers_and_added_to_by_its_members(team: Team) -> None:
    begun = answer(team.member.post("/evaluations/", json={"name": "ours", "team_id": team.id}))["evaluation_id"]
    batch = {"samples": [{"example_id": 1, "reward": 1.0}]}
    assert team.reader.post(f"/evaluations/{begun}/samples", json=batch).status_code == 403
    assert team.owner.post(f"/evaluations/{begun}/samples", json=batch).is_success
    listed = answer(team.reader.get("/evaluations/", params={"team_id": team.id}))["evaluations"]
    assert [row["evaluation_id"] for row in listed] == [begun]
    assert team.reader.post("/evaluations/", json={"name": "mine", "team_id": team.id}).status_code == 403


def test_a_team_does_not_exist_for_strangers(team: Team, hub: RunningHub, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as stranger:
        for path in ("", "/members", "/audit"):
            assert stranger.get(f"/teams/{team.id}{path}").status_code == 404
        assert stranger.get("/evaluations/", params={"team_id": team.id}).status_code == 404
        assert stranger.post("/environmentshub/resolve", json={"name": "x", "team_id": "cnone"}).status_code == 404


def test_what_is_done_with_a_team_stands_in_its_audit_log(team: Team) -> None:
    assert Push(team.member, "noted", "0.1.0", owner=team.slug).run().is_success
    assert team.member.put(f"/environmentshub/{team.slug}/noted/@0.1.0/yank", json={"reason": "x"}).is_success
    assert team.reader.get(f"/teams/{team.id}/audit").status_code == 403
    events = answer(team.owner.get(f"/teams/{team.id}/audit"))["data"]
    told = [(event["action"], event["actor"], event["subject"]) for event in events]
    whole = f"{team.slug}/noted"
    assert told == [
        ("version.yank", team.slugs["member"], f"{whole} 0.1.0"),
        ("version.publish", team.slugs["member"], f"{whole} 0.1.0"),
        ("environment.create", team.slugs["member"], whole),
        ("team.role", team.slugs["owner"], team.slugs["reader"]),
        ("team.role", team.slugs["owner"], team.slugs["member"]),
        ("team.create", team.slugs["owner"], team.slug),
    ]
    assert all(event["key_prefix"].startswith("prime_") and event["address"] for event in events)
