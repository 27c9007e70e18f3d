"""The name of a private environment in no answer to anybody else, however they ask."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.hub_server.pages import Browser
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
NAME = "xylophone-heist"
TAG = "very-private-tag"


@pytest.fixture(scope="module")
def private_owner(hub: RunningHub) -> str:
    """An owner with a private environment that was starred, forked, downloaded and evaluated, and a public one."""
    slug = "hider"
    with hub.client(hub.key_of(slug)) as owner:
        push = Push(owner, NAME, "0.1.0", visibility="PRIVATE", metadata={"tags": [TAG], "description": NAME})
        assert push.run().is_success
        assert Push(owner, "open-door", "0.1.0").run().is_success
        answer(owner.put(f"/environmentshub/{slug}/{NAME}/star"))
        answer(owner.post("/teams", json={"slug": "hiders"}))
        answer(owner.post(f"/environmentshub/{slug}/{NAME}/fork", json={"team_slug": "hiders"}))
        begun = {"name": "of something", "is_public": True, "environments": [{"id": push.environment_id}]}
        answer(owner.post("/evaluations/", json={**begun, "suite_id": "hidden"}))
        install = answer(owner.get(f"/environmentshub/{slug}/{NAME}/@latest"))["data"]["install_index_url"]
        assert NAME in httpx.get(install, trust_env=False).text
    return slug


@pytest.mark.parametrize("who", ["nobody", "a-prying-one"])
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/environmentshub/?limit=1000", "/api/v1/environmentshub/?search=xylophone",
        "/api/v1/environmentshub/facets",
        f"/api/v1/environmentshub/?tags={TAG}", "/api/v1/environmentshub/hider/xylophone-heistt/@latest",
        "/api/v1/environmentshub/hiders/xylophone/@latest", "/api/v1/environmentshub/hider/open-door/@latest",
        "/api/v1/evaluations/?suite_id=hidden", "/index/hider/simple/", "/index/hiders/simple/", "/simple/",
        "/openapi.json", "/healthz", "/readyz", "/", "/?q=xylophone", f"/?tag={TAG}", "/dashboard/owners/hider",
        "/dashboard/owners/hiders", "/dashboard/environments/hider/xylophone",
    ],
)  # fmt: skip
def test_no_answer_to_others_holds_the_name(hub: RunningHub, private_owner: str, who: str, path: str) -> None:
    key = hub.key_of(who) if who != "nobody" else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if path.startswith(("/dashboard", "/?")) or path == "/":
        browser = Browser(hub, key)
        browser.open(path)
        told = browser.page.css_first("main").html or ""
    else:
        told = httpx.get(f"{hub.url}{path}", headers=headers, trust_env=False).text
    for asked in ("xylophone-heistt", "xylophone heist"):
        told = told.replace(asked, "")
    assert NAME not in told
    if f"tags={TAG}" not in path and f"tag={TAG}" not in path:
        assert TAG not in told


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "rest",
    ["status", "versions", "@latest", "@latest/package", "@latest/inspect", "@latest/yank", "star", "fork", "actions"],
)
def test_a_private_environment_is_answered_about_as_one_that_is_not_there(
    hub: RunningHub, private_owner: str, method: str, rest: str
) -> None:
    with hub.client(hub.key_of("a-prying-one")) as stranger:
        answers = [
            stranger.request(method, f"/environmentshub/{private_owner}/{name}/{rest}", json={})
            for name in (NAME, "qzv-wkj")  # like no name that another test published, which would be offered
        ]
    told = {(response.status_code, response.text.replace(NAME, "?").replace("qzv-wkj", "?")) for response in answers}
    assert len(told) == 1, told
