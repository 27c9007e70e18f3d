"""Every route of the hub, called as nobody, as a stranger, as the owner and as an administrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from running_hub import Push, RunningHub, answer

from hub_server.access import RIGHTS, Right
from hub_server.app import all_routers

pytestmark = pytest.mark.both_databases

NewUser = Callable[[], tuple[str, str]]

# What each right means for (nobody, a stranger, the owner, an administrator) on a private environment: a status that
# refuses, or None when the caller gets past the door.
PAST: tuple[int | None, ...] = (None, None, None, None)
EXPECTED: dict[Right, tuple[int | None, ...]] = {
    Right.ANYONE: PAST,
    Right.VISITOR: PAST,
    Right.INDEX: PAST,
    Right.UPLOADER: (401, 403, None, 403),
    Right.USER: (401, None, None, None),
    Right.ADMIN: (401, 403, 403, None),
    Right.MONITOR: (401, 403, 403, None),
    Right.READER: (404, 404, None, 404),
    Right.OWNER: (401, 404, None, 404),
    Right.EVALUATION_READER: (404, 404, None, 404),
    Right.EVALUATION_OWNER: (401, 404, None, 404),
    Right.SECRET_KEEPER: (401, 404, None, 404),
}
ROUTES = [route for router in all_routers() for route in router.routes if isinstance(route, APIRoute)]


@pytest.fixture(scope="module")
def parts(hub: RunningHub) -> dict[str, str]:
    """The values of all path parameters, for one private environment with one version."""
    with hub.client(hub.key_of("the-owner")) as client:
        push = Push(client, "locked", "0.1.0", visibility="PRIVATE")
        assert push.run().is_success
        assert client.post("/environmentshub/resolve", json={"name": "doomed"}).is_success
        evaluation = answer(client.post("/evaluations/", json={"name": "locked"}))["evaluation_id"]
        secret = answer(client.post("/secrets", json={"name": "LOCKED", "value": "locked"}))["data"]["id"]
        details = answer(client.get("/environmentshub/the-owner/locked/@latest"))["data"]
    return {
        "owner": "the-owner", "name": "locked", "version": "9.9.9", "environment_id": push.environment_id,
        "wheel_id": "none", "version_id": "none", "token": "none", "project": "locked", "filename": push.filename,
        "sha256": details["wheel_sha256"], "evaluation_id": evaluation,
        "secret_id": secret,
    }  # fmt: skip


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_route_lets_in_whom_its_right_names(hub: RunningHub, parts: dict[str, str], route: APIRoute) -> None:
    right = RIGHTS[route.name]
    callers = (None, hub.key_of("a-stranger"), hub.key_of("the-owner"), hub.admin_key)
    for position in range(len(callers)):
        refused = EXPECTED.get(right, PAST)[position]
        response = _call(hub, route, parts, callers[position])
        assert response.status_code < 500
        if right is Right.TOKEN:
            assert response.status_code in (401, 403, 404), "a key is not the token that this route asks for"
        elif refused is not None:
            assert response.status_code == refused, (position, response.text)
        elif right in (Right.USER, Right.ADMIN, Right.MONITOR):
            assert response.status_code not in (401, 403), (position, response.text)
        elif right in (Right.READER, Right.OWNER):
            assert "environment the-owner/locked not found" not in response.text
            assert response.status_code not in (401, 403), (position, response.text)
        elif right in (Right.EVALUATION_READER, Right.EVALUATION_OWNER):
            assert response.status_code in (200, 400), (position, response.text)


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


def _call(hub: RunningHub, route: APIRoute, parts: dict[str, str], key: str | None) -> httpx.Response:
    path = route.path
    # The environment outlives this walk: its owner deletes another one.
    if route.name == "delete_environment" and key == hub.key_of("the-owner"):
        path = path.replace("{name}", "doomed")
    for name, value in parts.items():
        path = path.replace("{" + name + "}", value)
    method = next(iter(route.methods))
    options: dict[str, Any] = {"json": {}} if method in ("POST", "PATCH", "PUT") else {}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.request(
        method, hub.url + path, headers=headers, params={"challenge": "none"}, trust_env=False, **options
    )
