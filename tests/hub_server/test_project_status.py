"""Marks of whole environments (PEP 792): what the index says, and what they keep from happening."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.running_hub import Push, RunningHub, answer, make_wheel

NewUser = Callable[[], tuple[str, str]]
JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}


def index(hub: RunningHub, slug: str, name: str, headers: dict[str, str]) -> httpx.Response:
    """Return an environment's page of the index as nobody."""
    return httpx.get(f"{hub.url}/index/{slug}/simple/{name}/", headers=headers, trust_env=False)


def test_a_new_environment_is_active_in_both_forms_of_the_index(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        assert Push(client, "fresh", "0.1.0").run().is_success
    page = index(hub, slug, "fresh", JSON).json()
    assert page["meta"]["api-version"] == "1.4"
    assert page["project-status"] == {"status": "active"}
    assert '<meta name="pypi:project-status" content="active">' in index(hub, slug, "fresh", {}).text


@pytest.mark.parametrize("status", ["archived", "deprecated"])
def test_an_owner_marks_an_environment_with_a_reason(hub: RunningHub, new_user: NewUser, status: str) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "marked", "0.1.0")
        assert push.run().is_success
        path = f"/environmentshub/{slug}/marked"
        before = index(hub, slug, "marked", JSON)
        marked = client.put(f"{path}/project-status", json={"status": status, "reason": 'use "x"'})
        assert answer(marked)["data"] == {"project_status": status, "status_reason": 'use "x"'}
        after = index(hub, slug, "marked", JSON)
        assert after.headers["etag"] != before.headers["etag"]
        assert after.json()["project-status"] == {"status": status, "reason": 'use "x"'}
        assert after.json()["files"] == before.json()["files"]
        text = index(hub, slug, "marked", {}).text
        assert '<meta name="pypi:project-status-reason" content="use &quot;x&quot;">' in text
        assert answer(client.get(f"{path}/@latest"))["data"]["project_status"] == status
        listed = answer(client.get("/environmentshub/", params={"owner": slug}))["data"]
        assert listed[0]["project_status"] == status
        events = answer(client.get("/user/audit"))["data"]
        assert (events[0]["action"], events[0]["details"]["status"]) == ("environment.status", status)


def test_an_archived_environment_takes_no_new_version_in_any_way(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        assert Push(client, "closed", "0.1.0").run().is_success
        begun = Push(client, "closed", "0.2.0")
        begun.resolve()
        assert begun.send_wheel().is_success
        path = f"/environmentshub/{slug}/closed"
        assert client.put(f"{path}/project-status", json={"status": "archived"}).is_success
        name, wheel = make_wheel("closed", "0.3.0")
        by_form = httpx.post(
            f"{hub.url}/index/{slug}/legacy/",
            data={":action": "file_upload", "filetype": "bdist_wheel"},
            files={"content": (name, wheel)},
            auth=("__token__", key),
            trust_env=False,
        )
        for refused in (Push(client, "closed", "0.4.0").run(), begun.send_source(), by_form):
            assert refused.status_code == 409
            assert refused.json()["detail"] == "closed is archived and takes no new versions"
        assert Push(client, "closed", "0.1.0").run().is_success, "the same bytes again change nothing"
        versions = answer(client.get(f"{path}/versions"))["data"]["versions"]
        assert [row["version"] for row in versions] == ["0.1.0"]
        assert client.put(f"{path}/project-status", json={"status": "active"}).is_success
        assert begun.send_source().is_success


def test_a_quarantined_environment_is_out_of_reach_until_an_administrator_ends_it(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    with hub.client(key) as owner, hub.client(hub.admin_key) as admin:
        assert Push(owner, "suspect", "0.1.0", visibility="PRIVATE").run().is_success
        path = f"/environmentshub/{slug}/suspect"
        details = answer(owner.get(f"{path}/@latest"))["data"]
        with httpx.Client(trust_env=False) as installer:
            page = details["install_index_url"] + "suspect/"
            file = httpx.URL(page).join(installer.get(page, headers=JSON).json()["files"][0]["url"])
            assert installer.get(file, auth=("x", key)).status_code == 200
            assert admin.put(f"{path}/quarantine", json={"reason": "steals keys"}).is_success
            shown = installer.get(page, headers=JSON).json()
            assert shown["project-status"] == {"status": "quarantined", "reason": "steals keys"}
            assert shown["files"] == []
            assert installer.get(file, auth=("x", key)).status_code == 404
        for refused in (
            owner.get(f"{path}/@latest/package"),
            owner.get(f"{path}/@latest/inspect"),
            owner.post(f"{path}/fork", json={}),
            owner.put(f"{path}/project-status", json={"status": "active"}),
        ):
            assert refused.status_code == 403
            assert "quarantined" in refused.json()["detail"]
        now = answer(owner.get(f"{path}/@latest"))["data"]
        assert [now[key] for key in ("wheel_url", "package_url", "install_index_url")] == [None] * 3
        assert Push(owner, "suspect", "0.2.0").run().status_code == 409
        assert admin.delete(f"{path}/quarantine").is_success
        assert admin.delete(f"{path}/quarantine").status_code == 409
        assert answer(owner.get(f"{path}/@latest"))["data"]["package_url"]


def test_only_administrators_quarantine_and_only_with_a_reason(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as owner, hub.client(hub.admin_key) as admin:
        assert Push(owner, "fine", "0.1.0").run().is_success
        path = f"/environmentshub/{slug}/fine"
        assert owner.put(f"{path}/quarantine", json={"reason": "x"}).status_code == 403
        assert owner.put(f"{path}/project-status", json={"status": "quarantined"}).status_code == 422
        assert admin.put(f"{path}/quarantine", json={}).status_code == 422
        assert admin.put(f"/environmentshub/{slug}/none/quarantine", json={"reason": "x"}).status_code == 404
        assert index(hub, slug, "fine", JSON).json()["project-status"] == {"status": "active"}
