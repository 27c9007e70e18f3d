"""Stars, forks, download counts and facets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running_hub import Push, RunningHub, answer, make_wheel, start_hub

NewUser = Callable[[], tuple[str, str]]


def details_of(client: httpx.Client, name: str, version: str = "latest") -> dict[str, Any]:
    data: dict[str, Any] = answer(client.get(f"/environmentshub/{name}/@{version}"))["data"]
    return data


def test_a_star_counts_once_and_can_be_taken_back(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as owner, hub.client(new_user()[1]) as fan, hub.client() as nobody:
        for name in ("bright", "dim"):
            assert Push(owner, name, "0.1.0").run().is_success
        path = f"/environmentshub/{slug}/bright/star"
        for _ in range(2):
            assert answer(fan.put(path))["data"] == {"starred": True, "stars": 1}
        assert answer(owner.put(path))["data"] == {"starred": True, "stars": 2}
        assert details_of(fan, f"{slug}/bright")["starred"]
        assert not details_of(nobody, f"{slug}/bright")["starred"]
        listed = answer(nobody.get("/environmentshub/", params={"owner": slug, "sort_by": "stars"}))["data"]
        assert [(row["name"], row["stars"]) for row in listed] == [("bright", 2), ("dim", 0)]
        starred = answer(fan.get("/environmentshub/", params={"starred_only": True}))
        assert [row["name"] for row in starred["data"]] == ["bright"]
        for _ in range(2):
            assert answer(fan.delete(path))["data"] == {"starred": False, "stars": 1}
        assert answer(fan.get("/environmentshub/", params={"starred_only": True}))["total"] == 0
        assert nobody.put(path).status_code == 401
        assert nobody.get("/environmentshub/", params={"starred_only": True}).status_code == 401
        assert fan.put(f"/environmentshub/{slug}/none/star").status_code == 404
        assert details_of(nobody, f"{slug}/bright")["stars"] == 1


def test_stars_given_at_once_all_count(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as owner:
        assert Push(owner, "crowded", "0.1.0").run().is_success
        keys = [new_user()[1] for _ in range(3)] * 2

        def give(of: str) -> None:
            with hub.client(of) as fan:
                answer(fan.put(f"/environmentshub/{slug}/crowded/star"))

        threads = [threading.Thread(target=give, args=(of,)) for of in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert details_of(owner, f"{slug}/crowded")["stars"] == 3


def test_a_fork_has_the_bytes_of_its_source_and_says_where_it_comes_from(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    forker, forker_key = new_user()
    third, third_key = new_user()
    with hub.client(key) as owner, hub.client(forker_key) as client, hub.client(third_key) as last:
        for version in ("0.1.0", "0.2.0"):
            assert Push(owner, "seed", version).run().is_success
        told = answer(client.post(f"/environmentshub/{slug}/seed/fork", json={}))["data"]
        assert (told["success"], told["slug"], told["owner"], told["name"]) == (True, f"{forker}/seed", forker, "seed")
        source, fork = details_of(owner, f"{slug}/seed"), details_of(client, f"{forker}/seed")
        assert (fork["id"], fork["version_id"]) == (told["environment_id"], told["version_id"])
        for same in ("semantic_version", "content_hash", "wheel_sha256", "package_sha256"):
            assert fork[same] == source[same]
        origin = {"owner": slug, "name": "seed", "environment_id": source["id"], "version": "0.2.0"}
        assert fork["metadata"]["origin"] == fork["metadata"]["forked_from"] == origin
        assert fork["metadata"]["fork_chain"] == [origin]
        assert "origin" not in source["metadata"]
        assert httpx.get(fork["wheel_url"], trust_env=False).content == Push(owner, "seed", "0.2.0").wheel
        answer(last.post(f"/environmentshub/{forker}/seed/fork"))
        second = details_of(last, f"{third}/seed")["metadata"]
        assert [step["owner"] for step in second["fork_chain"]] == [slug, forker]
        assert (second["origin"]["owner"], second["forked_from"]["owner"]) == (slug, forker)
        assert Push(client, "seed", "0.3.0").run().is_success
        assert details_of(owner, f"{slug}/seed")["semantic_version"] == "0.2.0"


def test_a_fork_that_cannot_be_is_refused_and_leaves_nothing(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    forker, forker_key = new_user()
    with hub.client(key) as owner, hub.client(forker_key) as client, hub.client() as nobody:
        assert Push(owner, "wanted", "0.1.0").run().is_success
        answer(owner.post("/environmentshub/resolve", json={"name": "empty"}))
        path = f"/environmentshub/{slug}/wanted/fork"
        assert nobody.post(path).status_code == 401
        assert client.post(path, json={"team_slug": "no-such-team"}).status_code == 404
        assert client.post(path, json={"team_slug": 3}).status_code == 422
        nothing = owner.post(f"/environmentshub/{slug}/empty/fork")
        assert nothing.status_code == 404
        assert "has no published version yet" in nothing.json()["detail"]
        assert answer(client.get("/environmentshub/", params={"mine_only": True}))["total"] == 0
        answer(client.post(path))
        again = client.post(path)
        assert again.status_code == 409
        assert again.json()["detail"].startswith(f"{forker}/wanted already exists")
        answer(client.delete(f"/environmentshub/{forker}/wanted"))
        deleted = client.post(path)
        assert deleted.status_code == 409
        assert "already exists as a deleted one" in deleted.json()["detail"]
        assert client.get(f"/environmentshub/{forker}/wanted/@latest").status_code == 404


def test_a_fork_of_a_private_environment_is_private_and_names_its_source_to_nobody_else(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    with hub.client(key) as owner, hub.client(new_user()[1]) as stranger:
        assert Push(owner, "closed", "0.1.0", visibility="PRIVATE").run().is_success
        assert stranger.post(f"/environmentshub/{slug}/closed/fork").status_code == 404
        assert Push(owner, "opened", "0.1.0").run().is_success
        answer(owner.post("/environmentshub/resolve", json={"name": "opened", "visibility": "PRIVATE"}))
        hub.key_of("opener")
        answer(owner.post("/environmentshub/resolve", json={"name": "opened", "visibility": "PUBLIC"}))
        with hub.client(hub.key_of("opener")) as opener:
            answer(opener.post(f"/environmentshub/{slug}/opened/fork"))
            assert details_of(opener, "opener/opened")["metadata"]["origin"]["owner"] == slug
            answer(owner.post("/environmentshub/resolve", json={"name": "opened", "visibility": "PRIVATE"}))
            assert "origin" not in details_of(opener, "opener/opened")["metadata"]


@pytest.mark.both_databases
def test_facets_count_what_the_caller_may_see(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        for name, tags in (("one", ["a", "b"]), ("two", ["b"]), ("three", [])):
            assert Push(client, name, "0.1.0", metadata={"tags": tags}).run().is_success
        assert Push(client, "four", "0.1.0", visibility="PRIVATE", metadata={"tags": ["b"]}).run().is_success

        def facets(asker: httpx.Client, **params: object) -> dict[str, Any]:
            data: dict[str, Any] = answer(asker.get("/environmentshub/facets", params={"owner": slug, **params}))[
                "data"
            ]
            return {name: [(row["value"], row["count"]) for row in rows] for name, rows in data.items()}

        seen = facets(nobody)
        assert seen["tags"] == [("b", 2), ("a", 1)]
        assert seen["owners"] == [(slug, 3)]
        assert seen["visibility"] == [("PUBLIC", 3)]
        assert seen["runtimes"] == []
        assert seen["checks"] == [("queued", 3)]
        assert facets(client)["visibility"] == [("PUBLIC", 3), ("PRIVATE", 1)]
        assert facets(client, tags=["a"])["tags"] == [("a", 1), ("b", 1)]
        assert facets(client, visibility="PRIVATE")["tags"] == [("b", 1)]
        assert nobody.get("/environmentshub/facets", params={"mine_only": True}).status_code == 401


def test_downloads_are_counted_and_a_stopped_hub_forgets_none(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        with hub.client(hub.admin_key) as client:
            slug = answer(client.get("/user/whoami"))["data"]["slug"]
            for name in ("taken", "left"):
                assert Push(client, name, "0.1.0").run().is_success
            details = details_of(client, f"{slug}/taken")
            wheel = details["wheel_url"]
            for _ in range(3):
                assert httpx.get(wheel, trust_env=False).is_success
            assert httpx.get(wheel, headers={"Range": "bytes=0-9"}, trust_env=False).status_code == 206
            assert httpx.get(details["package_url"], trust_env=False).is_success
            # Neither a look nor the rest of a file is a download.
            httpx.head(wheel, trust_env=False)
            httpx.get(wheel, headers={"Range": "bytes=5-9"}, trust_env=False)
            httpx.get(f"{wheel}.metadata", trust_env=False)
            httpx.get(wheel, headers={"If-None-Match": f'"{details["wheel_sha256"]}"'}, trust_env=False)
        assert hub.end() == 0
        hub = start_hub(tmp_path / "data")
        with hub.client() as nobody:
            counted = details_of(nobody, f"{slug}/taken")
            assert (counted["downloads"], counted["version_downloads"]) == (5, 5)
            rows = answer(nobody.get("/environmentshub/", params={"sort_by": "downloads"}))["data"]
            assert [(row["name"], row["downloads"]) for row in rows] == [("taken", 5), ("left", 0)]
            # Beside a running hub they are written within seconds.
            assert httpx.get(counted["wheel_url"], trust_env=False).is_success
            deadline = time.monotonic() + 20
            while details_of(nobody, f"{slug}/taken")["downloads"] == 5:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert details_of(nobody, f"{slug}/taken")["downloads"] == 6
    finally:
        hub.end()


def test_dependencies_on_addresses_are_named_and_those_on_files_refused(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()

    def about(*requirements: str) -> str:
        lines = "".join(f"Requires-Dist: {text}\n" for text in requirements)
        return f"Metadata-Version: 2.1\nName: leaning\nVersion: 0.1.0\n{lines}"

    moving, fixed = "tool @ git+https://example.com/tool", f"lib @ git+https://example.com/lib@{'0' * 40}"
    with hub.client(key) as client:
        push = Push(client, "leaning", "0.1.0")
        push.resolve()
        for wrong, words in (("tool @ file:///home/me/tool", "from another machine"), ("=nonsense", "cannot read")):
            push.filename, push.wheel = make_wheel("leaning", "0.1.0", metadata=about(wrong))
            refused = push.send_wheel()
            assert refused.status_code == 400
            assert wrong in refused.json()["detail"]
            assert words in refused.json()["detail"]
        assert client.get(f"/environmentshub/{slug}/leaning/@latest").status_code == 404
        push.filename, push.wheel = make_wheel("leaning", "0.1.0", metadata=about("plain>=1", moving, fixed))
        assert push.run().is_success
        details = details_of(client, f"{slug}/leaning")
        assert details["url_dependencies"] == [moving, fixed]
        assert [warning.split(" ")[0] for warning in details["dependency_warnings"]] == ["tool", "tool", "lib"]
        assert "names no commit" in details["dependency_warnings"][1]
