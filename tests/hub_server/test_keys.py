"""API keys: scopes, expiry, revoking, and that a key is shown once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from hub_server.access import RIGHTS
from hub_server.accounts.keys import mint_key, user_of_key
from hub_server.accounts.service import create_user
from hub_server.accounts.tables import User
from hub_server.database import Database, now
from hub_server.errors import TooManyRequests
from hub_server.rate_limits import LIMITS, RateLimiter
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


def test_a_key_is_shown_once_and_never_again(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        made = answer(client.post("/user/keys", json={"name": "laptop"}))["data"]
        assert made["api_key"].startswith(made["prefix"])
        listed = client.get("/user/keys")
    assert made["api_key"] not in listed.text
    rows = listed.json()["data"]
    assert [row["name"] for row in rows] == ["laptop", "first key, made by an administrator"]
    assert rows[0]["last_used_at"] is None
    assert rows[1]["last_used_at"] is not None


def test_a_revoked_key_is_refused_at_once(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        made = answer(client.post("/user/keys", json={"name": "lost"}))["data"]
        with hub.client(made["api_key"]) as lost:
            assert lost.get("/user/whoami").is_success
            assert answer(client.delete(f"/user/keys/{made['id']}"))["data"]["in_use"] is False
            assert lost.get("/user/whoami").status_code == 401
        assert client.delete("/user/keys/cnone").status_code == 404
        events = answer(client.get("/user/audit"))["data"]
    assert [event["action"] for event in events[:2]] == ["key.revoke", "key.create"]
    assert made["api_key"] not in str(events)


def test_nobody_revokes_the_key_of_somebody_else(hub: RunningHub, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as one, hub.client(new_user()[1]) as other:
        key_id = answer(one.get("/user/keys"))["data"][0]["id"]
        assert other.delete(f"/user/keys/{key_id}").status_code == 404
        assert one.get("/user/whoami").is_success


def test_a_key_with_scopes_does_only_what_they_name(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        assert Push(client, "scoped", "0.1.0", visibility="PRIVATE").run().is_success
        scopes = {"environments": "read", "evaluations": "write"}
        made = answer(client.post("/user/keys", json={"name": "reads", "scopes": scopes}))["data"]
    with hub.client(made["api_key"]) as limited:
        assert limited.get(f"/environmentshub/{slug}/scoped/@latest").is_success
        refused = limited.delete(f"/environmentshub/{slug}/scoped/@latest")
        assert refused.status_code == 403
        assert refused.json()["detail"] == (
            f"this API key ({made['prefix']}…) may not write environments; use one with the scope environments:write"
        )
        assert limited.post("/evaluations/", json={"name": "e"}).is_success
        assert limited.get("/user/whoami").status_code == 403
        page = httpx.get(f"{hub.url}/index/{slug}/simple/scoped/", auth=("x", made["api_key"]), trust_env=False)
        assert page.status_code == 200
        sent = httpx.post(f"{hub.url}/index/{slug}/legacy/", auth=("x", made["api_key"]), trust_env=False)
        assert sent.status_code == 403


def test_whoami_tells_what_the_key_allows(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        everything = answer(client.get("/user/whoami"))["data"]["scope"]
        assert all(access == {"read": True, "write": True} for access in everything.values())
        made = answer(client.post("/user/keys", json={"name": "few", "scopes": {"account": "read"}}))["data"]
    with hub.client(made["api_key"]) as limited:
        scope = answer(limited.get("/user/whoami"))["data"]["scope"]
    assert scope["account"] == {"read": True, "write": False}
    assert scope["environments"] == {"read": False, "write": False}


def test_a_key_makes_no_key_that_allows_more_or_lives_longer(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        wanted = {"name": "ci", "scopes": {"account": "write", "environments": "read"}, "expires_in_days": 2}
        made = answer(client.post("/user/keys", json=wanted))["data"]
    with hub.client(made["api_key"]) as limited:
        refusals = {
            "environments:write": {"name": "x", "scopes": {"environments": "write"}, "expires_in_days": 1},
            "evaluations:write": {"name": "x", "expires_in_days": 1},
            "expires before": {"name": "x", "scopes": {"environments": "read"}},
        }
        for words, body in refusals.items():
            refused = limited.post("/user/keys", json=body)
            assert refused.status_code == 403
            assert words in refused.json()["detail"]
        smaller = {"name": "x", "scopes": {"environments": "read"}, "expires_in_days": 1}
        assert limited.post("/user/keys", json=smaller).is_success
        assert len(answer(limited.get("/user/keys"))["data"]) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "x", "scopes": {"environments": "own"}},
        {"name": "x", "scopes": {"planets": "read"}},
        {"name": "x", "expires_in_days": 0},
    ],
)
def test_a_key_that_cannot_be_is_refused(hub: RunningHub, new_user: NewUser, body: dict[str, object]) -> None:
    with hub.client(new_user()[1]) as client:
        assert client.post("/user/keys", json=body).status_code == 422
        assert len(answer(client.get("/user/keys"))["data"]) == 1


def test_an_expired_key_is_nobodys(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    with database.write() as session:
        user = create_user(session, slug="somebody")
        live = mint_key(session, user, name="live", expires_at=now() + timedelta(minutes=1))
        dead = mint_key(session, user, name="dead", expires_at=now() - timedelta(milliseconds=1))
    assert user_of_key(database, live) is not None
    assert user_of_key(database, dead) is None


def test_who_calls_too_often_is_told_when_to_come_back_and_others_are_not() -> None:
    limiter = RateLimiter(enabled=True)
    somebody, other = User(id="c1"), User(id="c2")
    allowed = int(LIMITS["create_team"].split()[0])
    for _ in range(allowed):
        limiter.check("create_team", somebody, "")
    with pytest.raises(TooManyRequests, match="too many requests") as refused:
        limiter.check("create_team", somebody, "")
    assert 0 < refused.value.retry_after_s <= 3600
    limiter.check("create_team", other, "")
    limiter.check("whoami", somebody, "")
    RateLimiter(enabled=False).check("create_team", somebody, "")


def test_limits_are_of_routes_that_there_are() -> None:
    assert LIMITS.keys() <= RIGHTS.keys()


def test_a_limit_answers_429_with_retry_after(hub: RunningHub, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as client:
        statuses = [client.post("/feedback", json={"message": "hello"}) for _ in range(61)]
    assert [response.status_code for response in statuses] == [200] * 60 + [429]
    assert int(statuses[-1].headers["retry-after"]) >= 1
