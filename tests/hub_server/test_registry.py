"""Looking around in the registry: lists, names that are not there, private environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.running_hub import Push, RunningHub, answer, make_wheel

pytestmark = pytest.mark.both_databases

NewUser = Callable[[], tuple[str, str]]


def test_the_list_searches_filters_sorts_and_pages(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        for name in ("alpha-math", "beta-math", "gamma-code"):
            assert Push(client, name, "0.1.0", metadata={"tags": [name.split("-")[1], "toy"]}).run().is_success
        assert Push(client, "delta-secret", "0.1.0", visibility="PRIVATE").run().is_success

        def names(asker: object = nobody, **params: object) -> list[str]:
            found = answer(asker.get("/environmentshub/", params={"owner": slug, "sort_by": "name", **params}))
            return [row["name"] for row in found["data"]]

        assert names(sort_order="asc") == ["alpha-math", "beta-math", "gamma-code"]
        assert names(sort_order="desc") == ["gamma-code", "beta-math", "alpha-math"]
        assert names(search="MATH about", sort_order="asc") == ["alpha-math", "beta-math"]
        assert names(search="100%") == []
        assert names(tags=["math", "toy"], sort_order="asc", limit=1, offset=1) == ["beta-math"]
        assert names(client, visibility="PRIVATE") == ["delta-secret"]
        assert names(visibility="PRIVATE") == []
        assert names(client, starred_only=True) == []
        mine = answer(client.get("/environmentshub", params={"mine_only": "true", "limit": 2}))
        assert (len(mine["data"]), mine["total_count"]) == (2, 4)
        row = answer(nobody.get("/environmentshub/", params={"owner": slug, "search": "alpha"}))["data"][0]
        assert row["owner"] == {"name": slug}
        assert (row["latest_version"], row["visibility"], row["tags"]) == ("0.1.0", "PUBLIC", ["math", "toy"])
        assert nobody.get("/environmentshub/", params={"mine_only": "true"}).status_code == 401


def test_an_unknown_name_offers_the_nearest_that_the_caller_may_see(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        assert Push(client, "sort-numbers", "0.1.0").run().is_success
        assert Push(client, "sort-number-secret", "0.1.0", visibility="PRIVATE").run().is_success
        missing = nobody.get(f"/environmentshub/{slug}/sort-number/@latest")
        assert missing.status_code == 404
        assert f"did you mean {slug}/sort-numbers" in missing.json()["detail"]
        assert "secret" not in missing.json()["detail"]
        other_owner = nobody.get("/environmentshub/nobody/sort-numbers/@latest").json()["detail"]
        assert f"did you mean {slug}/sort-numbers" in other_owner
        version = nobody.get(f"/environmentshub/{slug}/sort-numbers/@9.9.9")
        assert version.status_code == 404
        assert "there are 0.1.0" in version.json()["detail"]


def test_latest_is_what_an_installer_would_choose(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        for version in ("0.9.0", "0.10.0", "1.0.0rc1"):
            assert Push(client, "order", version).run().is_success
        assert answer(client.get(f"/environmentshub/{slug}/order/@latest"))["data"]["semantic_version"] == "0.10.0"
        assert answer(client.get(f"/environmentshub/{slug}/order/@0.9"))["data"]["semantic_version"] == "0.9.0"
        rows = answer(client.get(f"/environmentshub/{slug}/order/versions"))["data"]["versions"]
        assert [row["version"] for row in rows] == ["1.0.0rc1", "0.10.0", "0.9.0"]


def test_a_private_environment_does_not_exist_for_others(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    _, stranger_key = new_user()
    with hub.client(key) as owner:
        assert Push(owner, "hidden", "0.1.0", visibility="PRIVATE").run().is_success
        details = answer(owner.get(f"/environmentshub/{slug}/hidden/@latest"))["data"]
        assert details["simple_index_url"] is None
        assert details["wheel_url"] is None
        assert "__token__:" in details["install_index_url"]
        for other in (hub.client(), hub.client(stranger_key)):
            for path in ("@latest", "versions", "status", "@0.1.0/package"):
                assert other.get(f"/environmentshub/{slug}/hidden/{path}").status_code == 404
            for body in ({"id": details["id"]}, {"name": "hidden", "owner_slug": slug}):
                assert other.post("/environmentshub/lookup", json=body).status_code == 404
        answer(owner.post("/environmentshub/resolve", json={"name": "hidden", "visibility": "PUBLIC"}))
        assert hub.client().get(f"/environmentshub/{slug}/hidden/@latest").is_success


def test_both_slash_forms_and_empty_json_bodies_are_taken(hub: RunningHub) -> None:
    with hub.client(hub.admin_key) as client:
        client.headers["Content-Type"] = "application/json"
        for path in ("/environmentshub", "/environmentshub/", "/user/whoami", "/user/whoami/"):
            assert client.get(path).status_code == 200
        empty = client.post("/environmentshub/resolve/")
        assert empty.status_code == 422
        assert empty.json()["detail"][0]["loc"] == ["body"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("PUT", "/user/whoami"), ("GET", "/environmentshub/a/b/@1")]
)
def test_every_answer_is_an_object(hub: RunningHub, method: str, path: str) -> None:
    with hub.client() as client:
        response = client.request(method, path)
        assert response.status_code in (404, 405)
        assert isinstance(response.json()["detail"], str)


def test_a_key_that_is_wrong_is_told_so_everywhere(hub: RunningHub) -> None:
    with hub.client("prime_wrong") as client:
        for path in ("/user/whoami", "/environmentshub/"):
            response = client.get(path)
            assert response.status_code == 401
            assert response.json()["detail"] == "this API key is wrong, expired or was revoked"


def test_a_refusal_does_not_repeat_what_was_sent(hub: RunningHub) -> None:
    with hub.client(hub.admin_key) as client:
        response = client.post("/auth_challenge/approve", json={"challenge": ["hush-hush"]})
        assert response.status_code == 422
        assert "hush-hush" not in response.text


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(hub: RunningHub) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(5):
            yield b" " * 1024**2

    with hub.client() as client:
        for content in (b" " * (5 * 1024**2), pieces()):
            response = client.post("/auth_challenge/generate", content=content)
            assert response.status_code == 413
            assert "bytes" in response.json()["detail"]


def test_a_search_offers_the_best_fit_first_unless_an_order_is_asked_for(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    described = {"description": "sudoku for beginners", "tags": []}
    with hub.client(key) as client, hub.client() as nobody:
        for name, metadata in (
            ("sudoku", {"tags": []}),
            ("tagged", {"tags": ["Sudoku"]}),
            ("told", described),
            ("sudoku-hard", {"tags": []}),
            ("other", {"tags": []}),
        ):
            assert Push(client, name, "0.1.0", metadata=metadata).run().is_success

        def names(**params: object) -> list[str]:
            found = answer(nobody.get("/environmentshub/", params={"owner": slug, **params}))
            return [row["name"] for row in found["data"]]

        assert names(search="SUDOKU") == ["sudoku", "sudoku-hard", "tagged", "told"]
        assert names(search="sudoku beginners") == ["told"]
        assert names(search="sudoku", sort_by="created_at") == ["sudoku-hard", "told", "tagged", "sudoku"]
        assert names(search="su%oku") == []


def test_a_search_finds_words_of_the_latest_readme_after_all_else(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()

    def publish(name: str, version: str, readme: str, description: str = "plain") -> None:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n{readme}"
        push = Push(client, name, version, code=f"VALUE = {version!r}\n", metadata={"description": description})
        push.filename, push.wheel = make_wheel(name, version, code=push.code, metadata=about)
        assert push.run().is_success

    def names(search: str) -> list[str]:
        rows = answer(client.get("/environmentshub/", params={"owner": slug, "search": search}))
        assert rows["total_count"] == len(rows["data"])
        return [row["name"] for row in rows["data"]]

    with hub.client(key) as client:
        publish("described", "0.1.0", "nothing", description="a quixotic task")
        publish("told", "0.1.0", '# Told\n\nA Quixotic-Windmill task, it\'s (100%) "odd".')
        assert names("quixotic") == ["described", "told"]
        assert names("windm") == names("quixotic-wind") == names("told odd") == ["told"]
        assert names("indmill") == names('"') == names("* OR -") == []
        facets = answer(client.get("/environmentshub/facets", params={"owner": slug, "search": "windmill"}))["data"]
        assert facets["owners"] == [{"value": slug, "count": 1}]
        publish("told", "0.2.0", "All new")
        assert names("windmill") == []
        assert client.put(f"/environmentshub/{slug}/told/@0.2.0/yank", json={"reason": "worse"}).is_success
        assert names("windmill") == ["told"]
        assert client.delete(f"/environmentshub/{slug}/told").is_success
        assert names("windmill") == []
