"""Each refusal of the API: its status, its words, and a hub that holds afterwards what it held before."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.accounts import keys
from hub_server.accounts.service import create_user
from hub_server.database import Database
from hub_server.errors import Malformed
from tests.hub_server.refusal_cases import CASES, Case
from tests.hub_server.stored import stored
from tests.hub_server.test_login_challenge import PRIVATE_KEY, pem_of
from tests.running_hub import Push, RunningHub, answer, make_wheel, put, start_hub


@dataclass
class Stage:
    """A hub with something of everything, who is who, and what the paths of the cases name."""

    hub: RunningHub
    keys: dict[str, str | None]
    parts: dict[str, str]
    holds: dict[str, object]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The hub of all cases."""
    hub = start_hub(tmp_path_factory.mktemp("refusing") / "data")
    names = ("keeper", "stranger", "reader", "member")
    api_keys: dict[str, str | None] = {name: hub.key_of(name) for name in names}
    api_keys |= {"nobody": None, "wrong": "prime_wrong", "admin": hub.admin_key}
    with hub.client(api_keys["keeper"]) as keeper:
        parts = {**of_environments(hub, keeper), **of_the_rest(hub, keeper)}
        scopes = {"environments": "read", "account": "write"}
        narrow = answer(keeper.post("/user/keys", json={"name": "n", "scopes": scopes, "expires_in_days": 1}))["data"]
    api_keys["narrow"] = narrow["api_key"]
    yield Stage(hub, api_keys, parts, stored(hub))
    hub.end()


def of_environments(hub: RunningHub, keeper: httpx.Client) -> dict[str, str]:
    """Publish what the cases are about, and leave some uploads half done."""
    pushed = Push(keeper, "open", "0.1.0")
    assert pushed.run().is_success
    assert Push(keeper, "open", "0.2.0", code="VALUE = 2\n").run().is_success
    assert Push(keeper, "locked", "0.1.0", visibility="PRIVATE").run().is_success
    answer(keeper.post("/teams", json={"slug": "the-team"}))
    for name in ("reader", "member"):
        answer(keeper.put(f"/teams/the-team/members/{name}", json={"role": name}))
    shared = Push(keeper, "shared", "0.1.0", owner="the-team")
    assert shared.run().is_success
    empty = Push(keeper, "empty", "0.1.0", visibility="PRIVATE")
    empty.resolve()
    waiting = answer(empty.announce_wheel())["data"]
    source = answer(empty.announce_source())["data"]
    sourced = Push(keeper, "sourced", "0.1.0")
    sourced.resolve()
    without_wheel = answer(sourced.announce_source())["data"]
    assert put(without_wheel["upload_url"], sourced.source).is_success
    unsound = Push(keeper, "unsound", "0.1.0")
    unsound.resolve()
    unsound.wheel = make_wheel("unsound", "0.1.0", without="RECORD")[1]
    refused = answer(unsound.announce_wheel())["data"]
    assert unsound.send_wheel().status_code == 400
    alone = Push(keeper, "alone", "0.1.0")
    alone.resolve()
    wheel = answer(alone.announce_wheel(wheel_only=True))["data"]
    assert put(wheel["upload_url"], alone.wheel).is_success
    assert alone.finalize("wheels", wheel["wheel_id"]).is_success
    for name in ("old", "bad"):
        assert Push(keeper, name, "0.1.0").run().is_success
    answer(keeper.put("/environmentshub/keeper/old/project-status", json={"status": "archived"}))
    with hub.client(hub.admin_key) as admin:
        answer(admin.put("/environmentshub/keeper/bad/quarantine", json={"reason": "it steals"}))
    old = answer(keeper.get("/environmentshub/keeper/old/@latest"))["data"]["id"]
    return {
        "open": pushed.environment_id, "shared": shared.environment_id, "empty": empty.environment_id, "old": old,
        "sourced": sourced.environment_id, "pending": waiting["wheel_id"], "unsent": source["version_id"],
        "no_wheel": without_wheel["version_id"], "upload": waiting["upload_url"].removeprefix(hub.url),
        "forgotten": refused["upload_url"].removeprefix(hub.url), "hash": pushed.content_hash,
    }  # fmt: skip


def of_the_rest(hub: RunningHub, keeper: httpx.Client) -> dict[str, str]:
    """Make an evaluation, secrets, a variable and logins."""
    private = answer(keeper.post("/evaluations/", json={"name": "e"}))["evaluation_id"]
    public = answer(keeper.post("/evaluations/", json={"name": "p", "is_public": True}))["evaluation_id"]
    answer(keeper.put(f"/evaluations/{public}", json={"status": "FAILED"}))
    secret = answer(keeper.post("/secrets", json={"name": "TOKEN", "value": "x"}))["data"]["id"]
    file = {"name": "CERT", "value": base64.b64encode(b"x").decode(), "isFile": True}
    as_file = answer(keeper.post("/secrets", json=file))["data"]["id"]
    with hub.client() as nobody:
        generate = {"encryptionPublicKey": pem_of(PRIVATE_KEY)}
        login = answer(nobody.post("/auth_challenge/generate", json=generate))["challenge"]
        done = answer(nobody.post("/auth_challenge/generate", json=generate))["challenge"]
    answer(keeper.post("/auth_challenge/approve", json={"challenge": done}))
    return {"private": private, "public": public, "secret": secret, "file": as_file, "login": login, "done": done}


def filled(value: Any, parts: dict[str, str]) -> Any:
    """Return a value with the names in braces replaced."""
    if isinstance(value, dict):
        return {key: filled(inner, parts) for key, inner in value.items()}
    return value.format(**parts) if isinstance(value, str) and "{" in value else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[4]} {case[5][:50]}")
def test_a_refusal_has_its_status_and_its_words_and_changes_nothing(stage: Stage, case: Case) -> None:
    who, method, path, sent, status, words = case
    key = stage.keys[who]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {"Accept": "text/html"} if path.startswith("/dashboard") else {}
    sent = {**filled(sent, stage.parts), "headers": {**headers, **sent.get("headers", {})}}
    response = httpx.request(method, stage.hub.url + filled(path, stage.parts), trust_env=False, **sent)
    assert response.status_code == status, response.text
    assert words.replace("'", "&#39;" if path.startswith("/dashboard") else "'") in response.text.replace('\\"', '"')
    assert stored(stage.hub) == stage.holds


def test_a_user_has_two_hundred_keys_in_use_at_most(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    with database.write() as session:
        user = create_user(session, slug="collector")
        for number in range(200):
            keys.mint_key(session, user, name=str(number))
        with pytest.raises(Malformed, match="you have 200 API keys in use; revoke one first"):
            keys.create_key(session, user, name="one more", scopes=None, expires_in_days=None)
        assert len(keys.keys_of(session, user)) == 200
    database.close()
