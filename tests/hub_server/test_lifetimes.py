"""What ends with what: tokens, sessions and uploads with their key or environment, and slugs with their owner."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from tests.hub_server.pages import Browser
from tests.hub_server.test_login_challenge import PRIVATE_KEY, pem_of
from tests.running_hub import Push, RunningHub, answer, put

NewUser = Callable[[], tuple[str, str]]
KEYS = "/dashboard/settings/keys"


def another_key(hub: RunningHub, key: str, **wanted: object) -> dict[str, str]:
    """Make one more key of the same user."""
    with hub.client(key) as client:
        data: dict[str, str] = answer(client.post("/user/keys", json={"name": "another", **wanted}))["data"]
        return data


def revoke(hub: RunningHub, key: str, key_id: str) -> None:
    with hub.client(key) as client:
        answer(client.delete(f"/user/keys/{key_id}"))


def code_of_waiting_login(hub: RunningHub) -> str:
    with hub.client() as client:
        body = {"encryptionPublicKey": pem_of(PRIVATE_KEY)}
        return str(answer(client.post("/auth_challenge/generate", json=body))["challenge"])


def test_an_index_token_ends_with_the_key_that_asked_for_it(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    leaked = another_key(hub, key)
    with hub.client(leaked["api_key"]) as client:
        assert Push(client, "locked", "0.1.0", visibility="PRIVATE").run().is_success
        url = urlsplit(answer(client.get(f"/environmentshub/{slug}/locked/@latest"))["data"]["install_index_url"])
    page = f"{hub.url}{url.path}locked/"
    token = ("__token__", str(url.password))
    assert httpx.get(page, auth=token, trust_env=False).is_success
    revoke(hub, key, leaked["id"])
    refused = httpx.get(page, auth=token, trust_env=False)
    assert refused.status_code == 401
    assert "this index token expired or is wrong" in refused.json()["detail"]
    assert httpx.get(page, auth=("__token__", key), trust_env=False).is_success


def test_a_key_that_is_revoked_in_the_middle_of_an_upload_publishes_nothing(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    leaked = another_key(hub, key)
    with hub.client(leaked["api_key"]) as client:
        push = Push(client, "halfway", "0.1.0")
        push.resolve()
        assert push.send_wheel().is_success
        source = answer(push.announce_source())["data"]
        revoke(hub, key, leaked["id"])
        assert put(source["upload_url"], push.source).is_success, "the URL is a right of its own, for an hour"
        refused = push.finalize("versions", source["version_id"])
    assert refused.status_code == 401
    assert refused.json()["detail"] == "this API key is wrong, expired or was revoked"
    with hub.client(key) as client:
        assert answer(client.get(f"/environmentshub/{slug}/halfway/versions"))["data"]["versions"] == []
        push.client = client
        assert push.finalize("versions", source["version_id"]).is_success, "another key of the same user goes on"


def test_a_session_makes_no_key_that_outlives_the_key_that_began_it(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    short = another_key(hub, key, expires_in_days=1)
    browser = Browser(hub, short["api_key"])
    browser.open(KEYS)
    assert browser.submit(KEYS, name="for good") == 403
    assert "expires before the one that you ask for would" in browser.words
    with hub.client(key) as client:
        assert "for good" not in [row["name"] for row in answer(client.get("/user/keys"))["data"]]


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_key_that_may_not_write_accounts_answers_no_login_in_a_browser(
    hub: RunningHub, new_user: NewUser, decision: str
) -> None:
    _, key = new_user()
    narrow = another_key(hub, key, scopes={"environments": "write"})
    browser = Browser(hub)
    browser.open(f"/dashboard/tokens/challenge?code={code_of_waiting_login(hub)}")
    assert browser.submit("/dashboard/tokens/challenge", api_key=narrow["api_key"], decision=decision) == 403
    assert browser.texts("[role=alert]") == [
        "This API key may not answer logins; use one with the scope account:write."
    ]
    with hub.client(key) as client:
        assert len(answer(client.get("/user/keys"))["data"]) == 2
    assert browser.submit("/dashboard/tokens/challenge", api_key=key, decision="approve") == 200


def test_a_slug_that_was_given_up_goes_to_nobody_else(hub: RunningHub, new_user: NewUser) -> None:
    (slug, key), (_, other) = new_user(), new_user()
    with hub.client(key) as client, hub.client(other) as thief, hub.client(hub.admin_key) as admin:
        assert Push(client, "trusted", "0.1.0").run().is_success
        answer(client.patch("/user/slug", json={"slug": f"{slug}-x"}))
        for response in (
            thief.patch("/user/slug", json={"slug": slug}),
            thief.post("/teams", json={"slug": slug}),
            admin.post("/users", json={"slug": slug}),
        ):
            assert response.status_code == 409
            assert response.json()["detail"] == f"the slug {slug!r} is already taken; choose another"
        answer(client.patch("/user/slug", json={"slug": slug}))
        assert answer(client.get(f"/environmentshub/{slug}/trusted/@latest"))["data"]["semantic_version"] == "0.1.0"


@pytest.mark.parametrize("kind", ["wheels", "versions"])
def test_an_environment_that_is_deleted_during_an_upload_takes_nothing_more(
    hub: RunningHub, new_user: NewUser, kind: str
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "going", "0.1.0", visibility="PRIVATE")
        push.resolve()
        wheel = answer(push.announce_wheel())["data"]
        assert put(wheel["upload_url"], push.wheel).is_success
        identifier = wheel["wheel_id"]
        if kind == "versions":
            assert push.finalize("wheels", identifier).is_success
            source = answer(push.announce_source())["data"]
            assert put(source["upload_url"], push.source).is_success
            identifier = source["version_id"]
        answer(client.delete(f"/environmentshub/{slug}/going"))
        refused = push.finalize(kind, identifier)
        assert refused.status_code == 404
        assert refused.json()["detail"] == f"environment {push.environment_id} not found on this hub"
        assert push.resolve()["created"] is True
        assert answer(client.get(f"/environmentshub/{slug}/going/versions"))["data"]["versions"] == []
