"""Every page, asked for by nobody, by a stranger and by the owner, each in a browser of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi.routing import APIRoute

from hub_server.access import IN_A_BROWSER, RIGHTS, Right
from hub_server.app import all_routers
from tests.fake_sandbox_node import create, fake_node
from tests.hub_server.pages import Browser
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
PAGES = [
    route
    for router in all_routers()
    for route in router.routes
    if isinstance(route, APIRoute) and RIGHTS[route.name] in IN_A_BROWSER and "GET" in route.methods
]
FORMS = [
    route
    for router in all_routers()
    for route in router.routes
    if isinstance(route, APIRoute) and RIGHTS[route.name] in IN_A_BROWSER and "POST" in route.methods
]
# For (nobody, a stranger, the owner): what a private thing answers; 0 is the way to the page where one signs in.
EXPECTED = {
    Right.PAGE: (200, 200, 200),
    Right.SIGNED_IN: (0, 200, 200),
    Right.PAGE_READER: (404, 404, 200),
    Right.PAGE_EVALUATION_READER: (404, 404, 200),
    Right.PAGE_SANDBOX_READER: (0, 404, 200),
    Right.PAGE_TEAM_READER: (0, 404, 200),
}


@pytest.fixture(scope="module")
def parts(hub: RunningHub) -> dict[str, str]:
    """The values of all path parameters, for private things of one owner."""
    with hub.client(hub.key_of("page-owner")) as client:
        push = Push(client, "locked", "0.1.0", visibility="PRIVATE")
        assert push.run().is_success
        evaluation = answer(client.post("/evaluations/", json={"name": "locked"}))["evaluation_id"]
        sample = {"example_id": 1, "reward": 1.0, "sample_id": "one"}
        answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": [sample]}))
        answer(client.post("/teams", json={"slug": "page-team"}))
        with fake_node() as node:
            node.register(hub)
            sandbox = create(client)["id"]
            node.leave(hub)
    browser = Browser(hub, hub.key_of("page-owner"))
    browser.open(f"/dashboard/evaluations/{evaluation}")
    identity = browser.links("tbody a")["example 1"].rpartition("/")[2]
    return {
        "owner": "page-owner", "name": "locked", "version": "0.1.0", "path": "pyproject.toml", "team_id": "page-team",
        "evaluation_id": evaluation, "identity": identity, "key_id": "none",
        "sandbox_id": sandbox,
    }  # fmt: skip


@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.name)
def test_each_page_is_shown_to_whom_its_right_names(hub: RunningHub, parts: dict[str, str], route: APIRoute) -> None:
    path = route.path_format.replace("{path:path}", "{path}").format(**parts)
    if route.name == "challenge_page":
        assert Browser(hub).open(path) == 404
        return
    for key, expected in zip((None, "page-stranger", "page-owner"), EXPECTED[RIGHTS[route.name]], strict=True):
        browser = Browser(hub, hub.key_of(key) if key else None)
        assert browser.open(path) == (expected or 200), (key, browser.words)
        if not expected:
            assert browser.response.url.path == "/dashboard/signin"
            assert browser.one("input[name=next]").attributes["value"] == path


@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.name)
def test_each_form_is_refused_unless_it_comes_from_a_page_of_the_same_browser(
    hub: RunningHub, parts: dict[str, str], route: APIRoute
) -> None:
    path = route.path_format.format(**parts)
    fields = {
        "form_token": "guess", "api_key": "prime_x", "code": "x", "decision": "approve", "name": "x", "slug": "xyz",
        "role": "member", "starred": "yes",
    }  # fmt: skip
    owner = Browser(hub, hub.key_of("page-owner"))
    assert owner.client.post(path, data=fields).status_code == 403
    owner.open("/dashboard/settings/keys")
    other_form = owner.one('form[action="/dashboard/signout"] input[name=form_token]').attributes["value"] or ""
    if route.name != "sign_out":
        assert owner.client.post(path, data={**fields, "form_token": other_form}).status_code == 403
    if RIGHTS[route.name] is not Right.PAGE:
        assert Browser(hub).client.post(path, data=fields).status_code == 401
