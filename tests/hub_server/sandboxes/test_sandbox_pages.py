"""The pages of sandboxes."""

from __future__ import annotations

from collections.abc import Callable

from tests.fake_sandbox_node import FakeNode, create
from tests.hub_server.pages import Browser
from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


def test_sandboxes_of_a_user_and_their_teams_are_listed_with_the_nodes(
    hub: RunningHub, node: FakeNode, new_user: NewUser
) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client(new_user()[1]) as other:
        team = answer(client.post("/teams", json={"slug": f"t-{slug}"[:30]}))["data"]["teamId"]
        create(client, name="mine")
        create(client, name="of the team", team_id=team)
        create(other, name="foreign")
    browser = Browser(hub, key)
    assert browser.open("/dashboard/sandboxes") == 200
    assert set(browser.links("tbody th a")) == {"mine", "of the team"}
    assert "a-node" in browser.words
    assert browser.texts("tbody .badge")[:2] == ["Running", "Running"]


def test_a_sandbox_shows_what_it_really_got_and_no_value(hub: RunningHub, node: FakeNode, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        made = create(
            client, name="one", labels=["a"], secrets={"TOKEN": "sk-4711"}, environment_vars={"MODE": "quick-4711"}
        )
        node.finish(made["id"], "OOM_KILLED", "all memory was used")
        node.beat(hub, made["id"])
    browser = Browser(hub, key)
    assert browser.open(f"/dashboard/sandboxes/{made['id']}") == 200
    assert "all memory was used ( OOM_KILLED )" in browser.words
    assert "Level container , by fake." in browser.words
    names, cells = browser.texts("tbody th"), browser.texts("tbody td")
    limits = dict(zip(names, zip(cells[::2], cells[1::2], strict=True), strict=True))
    assert limits["memory"] == ("1,024 MiB", "enforced")
    assert limits["processes"] == ("512", "not enforced")
    assert "TOKEN" in browser.words
    assert "4711" not in browser.response.text


def test_without_sandboxes_and_nodes_the_page_says_what_to_do(hub: RunningHub, new_user: NewUser) -> None:
    browser = Browser(hub, new_user()[1])
    assert browser.open("/dashboard/sandboxes") == 200
    assert "There is none yet." in browser.words
    assert "prime sandbox serve" in browser.words
