"""Every route of the hub, called as nobody, as a stranger, as each role of a team, and as an administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from hub_server.access import IN_A_BROWSER, RIGHTS, Right
from hub_server.app import all_routers
from tests.fake_sandbox_node import FakeNode, create, fake_node
from tests.running_hub import Push, RunningHub, answer

pytestmark = pytest.mark.both_databases

NewUser = Callable[[], tuple[str, str]]

CALLERS = ("nobody", "a-stranger", "the-reader", "the-member", "the-owner", "an administrator")
# What each right means for these callers on a private environment and an evaluation of a team: a status that refuses,
# or None when the caller gets past the door.
PAST: tuple[int | None, ...] = (None, None, None, None, None, None)
EXPECTED: dict[Right, tuple[int | None, ...]] = {
    Right.ANYONE: PAST,
    Right.VISITOR: PAST,
    Right.INDEX: PAST,
    Right.UPLOADER: (401, 403, 403, None, None, 403),
    Right.USER: (401, None, None, None, None, None),
    Right.ADMIN: (401, 403, 403, 403, 403, None),
    Right.MONITOR: (401, 403, 403, 403, 403, None),
    Right.READER: (404, 404, None, None, None, 404),
    Right.READING_USER: (401, 404, None, None, None, 404),
    Right.WRITER: (401, 404, 403, None, None, 404),
    Right.OWNER: (401, 404, 403, 403, None, 404),
    Right.EVALUATION_READER: (404, 404, None, None, None, 404),
    Right.EVALUATION_OWNER: (401, 404, 403, None, None, 404),
    Right.SECRET_KEEPER: (401, 404, 404, 404, None, 404),
    Right.SANDBOX_READER: (401, 404, None, None, None, 404),
    Right.SANDBOX_KEEPER: (401, 404, 403, None, None, 404),
    Right.NODE: (401, 403, 403, 403, 403, None),
    Right.TEAM_READER: (401, 404, None, None, None, 404),
    Right.TEAM_OWNER: (401, 404, 403, 403, None, 404),
    # A page looks at the session of a browser and never at a key: all these callers are nobody.
    Right.PAGE_READER: (404,) * 6,
    Right.PAGE_EVALUATION_READER: (404,) * 6,
}
ROUTES = [route for router in all_routers() for route in router.routes if isinstance(route, APIRoute)]


@dataclass(frozen=True)
class Walk:
    """The values of all path parameters, and the key of each caller."""

    parts: dict[str, str]
    keys: dict[str, str | None]


@pytest.fixture(scope="module")
def node(hub: RunningHub) -> Iterator[FakeNode]:
    """A node for sandboxes that run nothing."""
    with fake_node() as running:
        running.register(hub)
        yield running
        running.leave(hub)


@pytest.fixture(scope="module")
def walk(hub: RunningHub, node: FakeNode) -> Walk:
    """A team of three, a private environment of it with one version, an evaluation, a secret and a sandbox."""
    keys: dict[str, str | None] = {name: hub.key_of(name) for name in CALLERS[1:5]}
    keys |= {"nobody": None, "an administrator": hub.admin_key}
    with hub.client(keys["the-owner"]) as client:
        team = answer(client.post("/teams", json={"slug": "the-team"}))["data"]["teamId"]
        for role in ("reader", "member"):
            answer(client.put(f"/teams/{team}/members/the-{role}", json={"role": role}))
        push = Push(client, "locked", "0.1.0", visibility="PRIVATE", owner="the-team")
        assert push.run().is_success
        doomed = {"name": "doomed", "visibility": "PRIVATE", "team_id": team}
        assert client.post("/environmentshub/resolve", json=doomed).is_success
        evaluation = answer(client.post("/evaluations/", json={"name": "locked", "team_id": team}))["evaluation_id"]
        secret = answer(client.post("/secrets", json={"name": "LOCKED", "value": "locked"}))["data"]["id"]
        sandbox = create(client, team_id=team)["id"]
        details = answer(client.get("/environmentshub/the-team/locked/@latest"))["data"]
    parts = {
        "owner": "the-team", "name": "locked", "version": "9.9.9", "environment_id": push.environment_id,
        "wheel_id": "none", "version_id": "none", "token": "none", "project": "locked", "filename": push.filename,
        "sha256": details["wheel_sha256"], "evaluation_id": evaluation, "team_id": team, "user_slug": "not-in-it",
        "key_id": "none", "secret_id": secret, "action_id": "none",
        "sandbox_id": sandbox, "exposure_id": "none", "session_id": "none", "node_id": "none", "rest": "none",
    }  # fmt: skip
    return Walk(parts, keys)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_route_lets_in_whom_its_right_names(hub: RunningHub, walk: Walk, route: APIRoute) -> None:
    right = RIGHTS[route.name]
    for caller, refused in zip(CALLERS, EXPECTED.get(right, PAST), strict=True):
        response = _call(hub, route, walk, caller)
        assert response.status_code < 500
        if right is Right.TOKEN:
            assert response.status_code in (401, 403, 404), "a key is not the token that this route asks for"
        elif refused is not None:
            assert response.status_code == refused, (caller, response.text)
        elif right not in (Right.ANYONE, Right.VISITOR, Right.INDEX, *IN_A_BROWSER):
            assert "environment the-team/locked not found" not in response.text, caller
            assert response.status_code not in (401, 403), (caller, response.text)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_key_without_scopes_for_it_gets_into_no_route_that_looks_at_keys(
    hub: RunningHub, walk: Walk, route: APIRoute
) -> None:
    if RIGHTS[route.name] in (Right.ANYONE, Right.TOKEN, *IN_A_BROWSER):
        return
    with hub.client(walk.keys["the-owner"]) as client:
        made = answer(client.post("/user/keys", json={"name": "may do nothing", "scopes": {}}))["data"]
    powerless = Walk(walk.parts, {"the-owner": made["api_key"]})
    response = _call(hub, route, powerless, "the-owner")
    assert response.status_code == 403
    assert "may not" in response.text or response.request.method == "HEAD"


def test_a_public_environment_can_be_read_by_all_and_changed_by_its_owner(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    _, stranger_key = new_user()
    with hub.client(key) as owner, hub.client(stranger_key) as stranger, hub.client() as nobody:
        push = Push(owner, "open", "0.1.0")
        assert push.run().is_success
        assert nobody.get(f"/environmentshub/{slug}/open/@latest").is_success
        assert nobody.delete(f"/environmentshub/{slug}/open").status_code == 401
        assert stranger.delete(f"/environmentshub/{slug}/open").status_code == 403
        assert stranger.delete(f"/environmentshub/{slug}/open/@0.1.0").status_code == 403
        push.client = stranger
        assert push.announce_wheel().status_code == 403
        assert owner.get(f"/environmentshub/{slug}/open/@latest").is_success


def _call(hub: RunningHub, route: APIRoute, walk: Walk, caller: str) -> httpx.Response:
    path, key = route.path, walk.keys[caller]
    # The environment outlives this walk: its owner deletes another one.
    if route.name == "delete_environment" and caller == "the-owner":
        path = path.replace("{name}", "doomed")
    for name, value in walk.parts.items():
        path = path.replace("{" + name + "}", value)
    method = next(iter(route.methods))
    options: dict[str, Any] = {"json": {}} if method in ("POST", "PATCH", "PUT") else {}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.request(
        method, hub.url + path, headers=headers, params={"challenge": "none"}, trust_env=False, **options
    )
