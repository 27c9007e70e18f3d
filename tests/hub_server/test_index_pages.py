"""Index pages as clients fetch them: again, in parts, compressed, of the whole hub; and yanked versions on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from hub_server.registry.index import HTML_TYPE, JSON_TYPE
from hub_server.registry.page_cache import Page, PageCache
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


def get(hub: RunningHub, path: str, key: str | None = None, **headers: str) -> httpx.Response:
    """Fetch a page of the index as JSON, as nobody or with an API key as the password."""
    auth = ("__token__", key) if key else None
    with httpx.Client(base_url=hub.url, trust_env=False) as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.get(path, headers={"Accept": JSON_TYPE, "Accept-Encoding": "identity", **named}, auth=auth)


def yanked(page: dict[str, Any]) -> dict[str, object]:
    return {file["filename"].split("-")[1]: file["yanked"] for file in page["files"]}


def test_a_yanked_version_stays_for_who_pins_it_and_says_why(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        for version in ("0.1.0", "0.2.0"):
            assert Push(client, "regret", version).run().is_success
        base, page = f"/environmentshub/{slug}/regret", f"/index/{slug}/simple/regret/"
        before = get(hub, page)
        assert yanked(before.json()) == {"0.1.0": False, "0.2.0": False}
        told = answer(client.put(f"{base}/@0.2.0/yank", json={"reason": 'rewards "nothing" <b>'}))["data"]
        assert (told["yanked"], told["yanked_reason"]) == (True, 'rewards "nothing" <b>')
        after = get(hub, page, If_None_Match=before.headers["etag"])
        assert after.status_code == 200
        assert yanked(after.json()) == {"0.1.0": False, "0.2.0": 'rewards "nothing" <b>'}
        html = get(hub, page, Accept=HTML_TYPE).text
        assert html.count("data-yanked=") == 1
        assert 'data-yanked="rewards &quot;nothing&quot; &lt;b&gt;"' in html
        assert answer(client.get(f"{base}/@latest"))["data"]["semantic_version"] == "0.1.0"
        pinned = answer(client.get(f"{base}/@0.2.0"))["data"]
        assert pinned["yanked"] is True
        assert httpx.get(pinned["wheel_url"], trust_env=False).is_success
        rows = answer(client.get(f"{base}/versions"))["data"]["versions"]
        assert {row["version"]: row["yanked"] for row in rows} == {"0.2.0": True, "0.1.0": False}
        answer(client.put(f"{base}/@0.2.0/yank", json={}))
        assert yanked(get(hub, page).json())["0.2.0"] is True
        for _ in range(2):
            assert answer(client.delete(f"{base}/@0.2.0/yank"))["data"]["yanked"] is False
        assert yanked(get(hub, page).json())["0.2.0"] is False
        assert answer(client.get(f"{base}/@latest"))["data"]["semantic_version"] == "0.2.0"
        assert client.put(f"{base}/@9.9.9/yank", json={}).status_code == 404
        assert client.put(f"{base}/@0.2.0/yank", json={"reason": "x" * 501}).status_code == 422


def test_an_environment_whose_versions_are_all_yanked_is_still_there(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        assert Push(client, "alone", "0.1.0").run().is_success
        answer(client.put(f"/environmentshub/{slug}/alone/@latest/yank", json={"reason": "broken"}))
        with hub.client() as nobody:
            details = answer(nobody.get(f"/environmentshub/{slug}/alone/@latest"))["data"]
        assert (details["semantic_version"], details["yanked_reason"]) == ("0.1.0", "broken")


def test_a_page_is_sent_once_until_it_changes(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    page = f"/index/{slug}/simple/changing/"
    with hub.client(key) as client:
        assert Push(client, "changing", "0.1.0").run().is_success
        first = get(hub, page)
        tag = first.headers["etag"]
        for seen in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = get(hub, page, If_None_Match=seen)
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
        assert get(hub, page, If_None_Match=tag, Accept=HTML_TYPE).status_code == 200
        assert Push(client, "changing", "0.2.0").run().is_success
        second = get(hub, page, If_None_Match=tag)
        assert second.json()["versions"] == ["0.1.0", "0.2.0"]
        assert int(second.headers["x-pypi-last-serial"]) > int(first.headers["x-pypi-last-serial"])
        answer(client.delete(f"/environmentshub/{slug}/changing/@0.2.0"))
        assert get(hub, page).json()["versions"] == ["0.1.0"]
        answer(client.delete(f"/environmentshub/{slug}/changing"))
        assert get(hub, page, If_None_Match=tag).status_code == 404


def test_a_page_comes_compressed_to_who_asks(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        for number in range(3):
            assert Push(client, "squeezed", f"0.{number}.0").run().is_success
    page = f"/index/{slug}/simple/squeezed/"
    plain, small = get(hub, page), get(hub, page, Accept_Encoding="br, gzip;q=0.8")
    assert small.headers["content-encoding"] == "gzip"
    assert small.json() == plain.json()
    assert small.headers["etag"] != plain.headers["etag"]
    assert get(hub, page, Accept_Encoding="gzip", If_None_Match=small.headers["etag"]).status_code == 304
    for refusing in ("gzip;q=0", "gzip;q=0.000", "br"):
        assert "content-encoding" not in get(hub, page, Accept_Encoding=refusing).headers


def test_a_wheel_is_served_in_parts_and_named_by_its_hash(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "pieces", "0.1.0", visibility="PRIVATE")
        assert push.run().is_success
    (file,) = get(hub, f"/index/{slug}/simple/pieces/", key).json()["files"]
    url = f"/index/{slug}/simple/pieces/{file['url']}"
    size, tag = len(push.wheel), f'"{file["hashes"]["sha256"]}"'
    assert get(hub, url).status_code == 404
    assert get(hub, url, key, If_None_Match=tag).status_code == 304
    for asked, part in (("bytes=0-3", push.wheel[:4]), ("bytes=-10", push.wheel[-10:]), ("bytes=5-", push.wheel[5:])):
        response = get(hub, url, key, Range=asked)
        assert (response.status_code, response.content) == (206, part)
        assert response.headers["content-range"].endswith(f"/{size}")
    assert get(hub, url, key, Range="bytes=0-3", If_Range=tag).status_code == 206
    assert get(hub, url, key, Range="bytes=0-3", If_Range='"other"').status_code == 200
    beyond = get(hub, url, key, Range=f"bytes={size}-")
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{size}"
    head = httpx.head(hub.url + f"/index/{slug}/files/{tag[1:-1]}/{push.filename}", auth=("", key), trust_env=False)
    assert (head.status_code, head.content) == (200, b"")
    assert (head.headers["accept-ranges"], head.headers["content-length"]) == ("bytes", str(size))


def test_in_the_index_of_the_whole_hub_a_name_means_its_first_public_environment(
    hub: RunningHub, new_user: NewUser
) -> None:
    (first, first_key), (second, second_key) = new_user(), new_user()
    name = f"common-{first}"
    with hub.client(first_key) as one, hub.client(second_key) as two:
        assert Push(two, name, "9.0.0", visibility="PRIVATE").run().is_success
        assert get(hub, f"/simple/{name}/").status_code == 404
        assert Push(one, name, "0.1.0").run().is_success
        answer(two.post("/environmentshub/resolve", json={"name": name, "visibility": "PUBLIC"}))
        response = get(hub, f"/simple/{name}/")
        assert response.json()["versions"] == ["0.1.0"]
        (file,) = response.json()["files"]
        assert f"/index/{first}/files/" in str(response.url.join(file["url"]))
        assert httpx.get(response.url.join(file["url"]), trust_env=False).is_success
        listed = get(hub, "/simple/").json()["projects"]
        assert listed.count({"name": name}) == 1
        assert get(hub, f"/index/{second}/simple/{name}/").json()["versions"] == ["9.0.0"]
        answer(one.delete(f"/environmentshub/{first}/{name}"))
        assert get(hub, f"/simple/{name}/").status_code == 404
        assert {"name": name} not in get(hub, "/simple/").json()["projects"]
        assert Push(two, name, "9.1.0").run().is_success
        assert get(hub, f"/simple/{name}/").status_code == 404
        other_spelling = get(hub, f"/simple/{name.replace('-', '_').upper()}/")
        assert other_spelling.status_code == 301


def test_the_list_of_an_owner_shows_private_projects_to_the_owner_only(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    _, stranger_key = new_user()
    with hub.client(key) as client:
        assert Push(client, "seen", "0.1.0").run().is_success
        assert Push(client, "unseen", "0.1.0", visibility="PRIVATE").run().is_success

    def names(key: str | None) -> list[str]:
        return [project["name"] for project in get(hub, f"/index/{slug}/simple/", key).json()["projects"]]

    for _ in range(2):
        assert names(key) == ["seen", "unseen"]
        assert names(stranger_key) == names(None) == ["seen"]


def test_the_cache_of_pages_keeps_to_its_bound_and_drops_the_oldest() -> None:
    cache, made = PageCache(max_bytes=250), list[int]()

    def make(number: int) -> Callable[[], Page]:
        def page() -> Page:
            made.append(number)
            return Page.of(json.dumps("x" * 98), gzipped=True)

        return page

    for number in (1, 2, 1, 3, 1, 2):
        cache.get(number, make(number))
    assert made == [1, 2, 3, 2]
    assert PageCache(max_bytes=10).get("large", make(4)).body


@pytest.mark.parametrize("path", ["/simple/", "/simple/nothing/", "/index/nobody/simple/"])
def test_what_cannot_be_spoken_is_refused(hub: RunningHub, path: str) -> None:
    assert get(hub, path, Accept="image/png").status_code in (404, 406)
