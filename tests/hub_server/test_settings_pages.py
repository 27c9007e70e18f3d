"""Signing in and out, API keys, teams and the audit log, in a browser without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.hub_server.pages import Browser
from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
KEYS, TEAMS = "/dashboard/settings/keys", "/dashboard/settings/teams"


def keys_of(hub: RunningHub, key: str) -> list[dict[str, Any]]:
    with hub.client(key) as client:
        return list(answer(client.get("/user/keys"))["data"])


def test_who_wants_a_page_of_their_own_signs_in_and_comes_back_to_it(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    browser = Browser(hub)
    browser.open(f"{TEAMS}?x=1")
    assert browser.response.url.path == "/dashboard/signin"
    assert browser.submit("/dashboard/signin", api_key=f" {key} ") == 200
    assert str(browser.response.url) == f"{hub.url}{TEAMS}?x=1"
    assert slug in browser.texts("header nav a")
    browser.submit("/dashboard/signout")
    assert browser.response.url.path == "/"
    assert browser.texts("header nav a") == ["Sign in"]
    browser.open(KEYS)
    assert browser.response.url.path == "/dashboard/signin"


@pytest.mark.parametrize("key", ["prime_wrong", ""])
def test_a_wrong_key_or_none_signs_nobody_in(hub: RunningHub, key: str) -> None:
    browser = Browser(hub)
    browser.open("/dashboard/signin")
    assert browser.submit("/dashboard/signin", api_key=key) == 403
    assert browser.texts("[role=alert]") == [
        "This API key is wrong or was revoked." if key else "Paste an API key first."
    ]
    assert browser.texts("header nav a") == ["Sign in"]


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x", "/\nx"]
)
def test_signing_in_leads_nowhere_but_to_this_hub(hub: RunningHub, new_user: NewUser, elsewhere: str) -> None:
    browser = Browser(hub)
    browser.open("/dashboard/signin")
    browser.submit("/dashboard/signin", api_key=new_user()[1], next=elsewhere)
    assert str(browser.response.url) == f"{hub.url}/"


def test_a_key_that_is_limited_signs_nobody_in(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        limited = answer(client.post("/user/keys", json={"name": "ci", "scopes": {"environments": "read"}}))["data"]
    browser = Browser(hub)
    browser.open("/dashboard/signin")
    assert browser.submit("/dashboard/signin", api_key=limited["api_key"]) == 403
    assert "limited to some scopes" in browser.words
    assert browser.texts("header nav a") == ["Sign in"]


def test_a_session_ends_with_the_key_that_began_it(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        second = answer(client.post("/user/keys", json={"name": "laptop"}))["data"]
        thief, owner = Browser(hub, second["api_key"]), Browser(hub, key)
        answer(client.delete(f"/user/keys/{second['id']}"))
    thief.open(KEYS)
    assert thief.response.url.path == "/dashboard/signin"
    owner.open(KEYS)
    assert owner.response.url.path == KEYS


def test_a_new_key_is_shown_once_and_works_as_far_as_it_was_allowed(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    browser = Browser(hub, key)
    browser.open(KEYS)
    assert browser.submit(KEYS, name="for CI", days="30", reach="limited", environments="read") == 200
    (made,) = browser.texts("pre.copy")
    with hub.client(made) as client:
        assert client.get("/environmentshub/").is_success
        assert client.get("/user/whoami").status_code == 403
    browser.open(KEYS)
    assert made not in browser.response.text
    row = next(text for text in browser.texts("tbody tr") if "for CI" in text)
    assert "read environments" in row
    assert f"{made[:10]}…" in row
    listed = next(found for found in keys_of(hub, key) if found["name"] == "for CI")
    assert listed["scopes"] == {"environments": "read"}
    assert listed["expires_at"] is not None
    assert listed["last_used_at"] is not None


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"name": " "}, "Give the key a name"), ({"name": "x", "reach": "limited"}, "needs at least one right")],
)
def test_a_key_that_makes_no_sense_is_not_made(
    hub: RunningHub, new_user: NewUser, fields: dict[str, str], words: str
) -> None:
    _, key = new_user()
    browser = Browser(hub, key)
    browser.open(KEYS)
    assert browser.submit(KEYS, **fields) == 400
    assert words in browser.texts("[role=alert]")[0]
    assert len(keys_of(hub, key)) == 1


def test_a_key_is_revoked_from_its_row_and_nobody_elses(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        second = answer(client.post("/user/keys", json={"name": "old laptop"}))["data"]
    stranger = Browser(hub, new_user()[1])
    stranger.open(KEYS)
    token = stranger.one(f'form[action="{KEYS}"] input[name=form_token]').attributes["value"] or ""
    assert stranger.client.post(f"{KEYS}/{second['id']}/revoke", data={"form_token": token}).status_code == 403
    browser = Browser(hub, key)
    browser.open(KEYS)
    assert browser.submit(f"{KEYS}/{second['id']}/revoke") == 200
    assert "1 key revoked or expired" in browser.words
    with hub.client(second["api_key"]) as client:
        assert client.get("/user/whoami").status_code == 401
    browser.open("/dashboard/settings/audit")
    assert any("key.revoke" in row and "old laptop" in row for row in browser.texts("tbody tr"))


def test_a_team_is_made_joined_managed_and_left(hub: RunningHub, new_user: NewUser) -> None:
    (slug, key), (other, other_key) = new_user(), new_user()
    name = f"t-{slug}"
    owner, member = Browser(hub, key), Browser(hub, other_key)
    owner.open(TEAMS)
    assert owner.submit(TEAMS, slug=name, name="The <b>team</b>") == 200
    assert owner.response.url.path == f"{TEAMS}/{name}"
    assert "The <b>team</b>" in owner.words
    assert member.open(f"{TEAMS}/{name}") == 404
    add = next(form for form in owner.page.css("form") if form.css("input[type=text][name=slug]"))
    token = add.css_first("input[name=form_token]").attributes["value"] or ""  # type: ignore[union-attr]
    joined = {"form_token": token, "slug": other, "role": "reader"}
    assert owner.client.post(f"{TEAMS}/{name}/members", data=joined).status_code == 303
    assert member.open(f"{TEAMS}/{name}") == 200
    assert [row.split()[0] for row in member.texts("tbody tr")] == sorted((slug, other))
    assert not member.page.css("select")
    assert owner.client.post(f"{TEAMS}/{name}/members", data={**joined, "role": "member"}).status_code == 303
    assert member.submit(f"{TEAMS}/{name}/members/remove") == 200
    assert member.response.url.path == TEAMS
    assert "You are in no team yet" in member.words
    owner.open(f"{TEAMS}/{name}")
    assert "team.role" in owner.words
    assert owner.submit(f"{TEAMS}/{name}/members/remove") == 409
    assert len(owner.texts("tbody select")) == 1, "a team keeps an owner"


@pytest.mark.parametrize(("slug", "status"), [("No", 400), ("two words", 400), ("", 400), ("taken-by-a-user", 409)])
def test_a_team_without_a_proper_slug_is_not_made(hub: RunningHub, new_user: NewUser, slug: str, status: int) -> None:
    hub.key_of("taken-by-a-user")
    browser = Browser(hub, new_user()[1])
    browser.open(TEAMS)
    assert browser.submit(TEAMS, slug=slug) == status
    assert browser.texts("[role=alert]")
    browser.open(TEAMS)
    assert "You are in no team yet" in browser.words


def test_only_an_owner_changes_a_team(hub: RunningHub, new_user: NewUser) -> None:
    (slug, key), (other, other_key) = new_user(), new_user()
    with hub.client(key) as client:
        answer(client.post("/teams", json={"slug": f"u-{slug}"}))
    path = f"{TEAMS}/u-{slug}"
    owner = Browser(hub, key)
    owner.open(path)
    assert (
        owner.client.post(f"{path}/members", data={"form_token": "x", "role": "king", "slug": other}).status_code == 422
    )
    stranger = Browser(hub, other_key)
    assert (
        stranger.client.post(f"{path}/members", data={"form_token": "x", "role": "owner", "slug": other}).status_code
        == 404
    )
    assert [row.split()[0] for row in owner.texts("[aria-label=Members] tbody tr")] == [slug]
