"""The pages of the registry, as a browser without scripts sees them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import httpx
import pytest

from tests.hub_server.pages import Browser
from tests.running_hub import Push, RunningHub, answer, make_source, make_wheel

NewUser = Callable[[], tuple[str, str]]
EVIL = "<script>alert(1)</script>"
README = "# Sums\n\nAdd *two* numbers. See [the code](sums.py#L2) and <b onclick=x>this</b>.\n"
_COPIES_OF_A_VERSION = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 150)
    INSERT INTO releases (id, environment_id, semantic_version, version_key, content_hash, details, wheel_only, claimed,
                          created_at, published_at, yanked_reason)
    SELECT hex(randomblob(16)), environment_id, '0.' || n || '.0', '0.' || n, hex(randomblob(32)), details, wheel_only,
           claimed, created_at, '2020-01-01 00:' || printf('%02d:%02d', n / 60, n % 60) || '.000000', ''
    FROM releases, numbers WHERE environment_id = :environment
"""


def publish(
    client: httpx.Client, name: str, version: str = "0.1.0", *, readme: str = README, visibility: str | None = None,
    tags: list[str] | None = None, description: str = "Adds numbers.",
) -> Push:  # fmt: skip
    push = Push(client, name, version, visibility=visibility, code=f"def load_environment():\n    return {version!r}\n")
    push.metadata = {"description": description, "tags": tags or ["toy"]}
    about = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Python: >=3.11\nLicense-Expression: MIT\n"
        f"Requires-Dist: verifiers>=0.1.14\nProject-URL: Home, https://example.org/home\n"
        f"Project-URL: Evil, javascript:alert(1)\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    push.filename, push.wheel = make_wheel(name, version, code=push.code, metadata=about)
    push.source = make_source({f"{name}.py": push.code, "docs/notes.md": "# Notes\n", "data.bin": "\0\1", "empty": ""})
    sent = push.run()
    assert sent.is_success, sent.text
    return push


def test_the_list_is_searched_narrowed_down_and_sorted(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "apple-sums", tags=["math", "fruit"], description="Counts apples.")
        publish(client, "pear-game", tags=["fruit"])
        answer(client.put(f"/environmentshub/{slug}/pear-game/star"))
    visitor = Browser(hub)
    assert visitor.open(f"/?owner={slug}&sort=name") == 200
    assert visitor.texts(".environments h2 a") == [f"{slug}/apple-sums", f"{slug}/pear-game"]
    assert visitor.open(f"/?owner={slug}&sort=stars") == 200
    assert visitor.texts(".environments h2 a") == [f"{slug}/pear-game", f"{slug}/apple-sums"]
    assert "1 star" in visitor.words
    assert visitor.texts(".facets section li") == ["fruit 2", "math 1"]
    assert visitor.open(visitor.links(".facets a")["math"]) == 200
    assert visitor.texts(".environments h2 a") == [f"{slug}/apple-sums"]
    assert visitor.open(f"/?owner={slug}&check=passed") == 200
    assert "0 environments" in visitor.words
    visitor.open(f"/?owner={slug}")
    assert visitor.submit("/", q="counts APPLES") == 200
    assert visitor.texts(".environments h2 a") == [f"{slug}/apple-sums"]
    assert visitor.one("#q").attributes["value"] == "counts APPLES"
    assert visitor.open(f"/?owner={slug}&q=nothing-like-it") == 200
    assert "Nothing fits" in visitor.words


def test_a_long_list_comes_in_pages(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        for number in range(21):
            assert Push(client, f"many-{number:02d}", "0.1.0").run().is_success
    visitor = Browser(hub)
    visitor.open(f"/dashboard/owners/{slug}")
    assert len(visitor.texts(".environments li")) == 20
    assert visitor.open(f"/dashboard/owners/{slug}" + visitor.links(".pager a")["Next page"]) == 200
    assert len(visitor.texts(".environments li")) == 1
    visitor.open(f"/?owner={slug}&sort=name")
    assert visitor.open(visitor.links(".pager a")["Next page"]) == 200
    assert visitor.texts(".environments h2 a") == [f"{slug}/many-20"]
    visitor.open(f"/?owner={slug}&page=3")
    assert "There is no such page" in visitor.words


def test_an_environment_shows_its_readme_how_to_install_it_and_its_versions(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "sums", "0.1.0")
        publish(client, "sums", "0.2.0")
    visitor = Browser(hub)
    assert visitor.open(f"/dashboard/environments/{slug}/sums") == 200
    assert visitor.texts("h1") == ["sums"]
    assert visitor.one(".readme h3").text() == "Sums"
    assert visitor.links(".readme a")["the code"].endswith(f"/{slug}/sums/versions/0.2.0/files/sums.py#L2")
    index = f"{hub.url}/index/{slug}/simple/"
    assert visitor.texts("pre.copy") == [
        f"prime env install {slug}/sums",
        f"uv pip install --index {index} sums",
        f"pip install --extra-index-url {index} sums",
    ]
    assert visitor.texts(".dependencies li") == ["verifiers>=0.1.14"]
    assert visitor.links(".links a") == {"Home": "https://example.org/home"}
    assert visitor.texts("tbody th[scope=row] a") == ["0.2.0", "0.1.0"]
    for words in ("MIT", ">=3.11", "Adds numbers.", "0 stars", "0 downloads"):
        assert words in visitor.words
    assert visitor.open(f"/dashboard/environments/{slug}/sums/versions") == 200
    assert visitor.texts("tbody th[scope=row]") == ["0.2.0 Latest", "0.1.0"]
    assert visitor.texts("tbody td .badge") == ["not checked yet", "not checked yet"]


def test_versions_come_in_pages_of_a_hundred(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = publish(client, "sums", "1.0.0")
    with sqlite3.connect(hub.data_dir / "hub.db", timeout=30) as database:
        database.execute(_COPIES_OF_A_VERSION, {"environment": push.environment_id})
    database.close()
    visitor = Browser(hub)
    assert visitor.open(f"/dashboard/environments/{slug}/sums") == 200
    assert visitor.texts("tbody th[scope=row] a") == ["1.0.0", "0.150.0", "0.149.0", "0.148.0", "0.147.0"]
    assert visitor.open(visitor.links("main a")["All 151 versions"]) == 200
    assert len(visitor.texts("tbody tr")) == 100
    assert visitor.open(f"/dashboard/environments/{slug}/sums/versions" + visitor.links(".pager a")["Next page"]) == 200
    assert visitor.texts("tbody th[scope=row] a")[::50] == ["0.51.0", "0.1.0"]
    assert visitor.open(f"/dashboard/environments/{slug}/sums/versions?page=3") == 200
    assert "There is no such page" in visitor.words


def test_dependencies_on_addresses_are_shown_with_a_warning(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    about = "Metadata-Version: 2.4\nName: linked\nVersion: 0.1.0\nRequires-Dist: tool @ https://example.org/tool.whl\n"
    with hub.client(key) as client:
        push = Push(client, "linked", "0.1.0")
        push.filename, push.wheel = make_wheel("linked", "0.1.0", metadata=about)
        assert push.run().is_success
    visitor = Browser(hub)
    for path in ("", "/versions/0.1.0"):
        assert visitor.open(f"/dashboard/environments/{slug}/linked{path}") == 200
        assert visitor.texts(".side .notice") == [
            "tool comes from https://example.org/tool.whl, not from an index: "
            "pip and uv want it named on the command line as well"
        ]


def test_a_quarantined_environment_shows_neither_how_to_install_it_nor_its_source(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "risky")
    with hub.client(hub.admin_key) as admin:
        answer(admin.put(f"/environmentshub/{slug}/risky/quarantine", json={"reason": "it sends keys away"}))
    visitor = Browser(hub)
    for path in ("", "/versions/0.1.0"):
        assert visitor.open(f"/dashboard/environments/{slug}/risky{path}") == 200
        assert "This environment is quarantined: “it sends keys away”. Nothing of it can be" in visitor.words
        assert not visitor.texts("pre.copy")
        assert "Browse the source" not in visitor.words
    assert visitor.open(f"/dashboard/environments/{slug}/risky/versions/0.1.0/files/risky.py") == 403
    assert "it sends keys away" in visitor.words
    assert "load_environment" not in visitor.response.text


def test_a_version_shows_its_files_and_that_it_was_yanked(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = publish(client, "sums", "0.1.0")
        publish(client, "sums", "0.2.0")
        answer(client.put(f"/environmentshub/{slug}/sums/@0.1.0/yank", json={"reason": f"wrong {EVIL}"}))
    visitor = Browser(hub)
    assert visitor.open(f"/dashboard/environments/{slug}/sums/versions/0.1.0") == 200
    assert visitor.texts("h1") == ["sums 0.1.0"]
    assert f"wrong {EVIL}" in visitor.texts(".notice.warn")[0]
    assert EVIL not in visitor.response.text
    assert f"prime env install {slug}/sums@0.1.0" in visitor.texts("pre.copy")
    assert push.filename in visitor.words
    assert push.content_hash in visitor.words
    assert visitor.open(f"/dashboard/environments/{slug}/sums/versions/9.9") == 404
    assert "there are 0.2.0, 0.1.0" in visitor.words


def test_the_source_of_a_version_is_read_folder_by_folder(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "sums")
    top = f"/dashboard/environments/{slug}/sums/versions/0.1.0"
    visitor = Browser(hub)
    visitor.open(top)
    assert visitor.open(visitor.links()["Browse the source"]) == 200
    assert visitor.texts(".files tbody th") == ["docs/", "data.bin", "empty", "sums.py"]
    assert visitor.open(visitor.links(".files a")["sums.py"]) == 200
    assert visitor.texts(".source td") == ["def load_environment():", "return '0.1.0'"]
    assert visitor.texts(".source .tok-keyword") == ["def", "return"]
    assert visitor.one("#L2").tag == "tr"
    visitor.open(f"{top}/files/docs")
    assert visitor.open(visitor.links(".files a")["notes.md"]) == 200
    assert visitor.one(".readme h3").text() == "Notes"
    assert visitor.links(".crumbs a")["docs"] == f"{top}/files/docs"
    visitor.open(f"{top}/files/data.bin")
    assert "This file is no text" in visitor.words
    visitor.open(f"{top}/files/empty")
    assert "This file is empty" in visitor.words
    assert visitor.open(f"{top}/files/nothing.py") == 404
    assert visitor.open(f"{top}/files/..%2f..%2fetc/passwd") == 400
    assert visitor.open(f"{top}/files/%00") == 400


def test_a_private_environment_is_shown_to_its_owner_only_with_lines_for_a_key(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "hidden", visibility="PRIVATE")
    path = f"/dashboard/environments/{slug}/hidden"
    for visitor in (Browser(hub), Browser(hub, new_user()[1])):
        assert visitor.open(path) == 404
        assert visitor.open(f"/?owner={slug}") == 200
        assert "hidden" not in visitor.words
    owner = Browser(hub, key)
    assert owner.open(path) == 200
    assert "Private" in owner.texts(".badge")
    assert any("__token__:KEY@" in line for line in owner.texts("pre.copy"))
    assert owner.open("/?visibility=PRIVATE") == 200
    assert owner.texts(".environments h2 a") == [f"{slug}/hidden"]


def test_who_is_signed_in_stars_an_environment_and_takes_it_back(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "sums")
    path = f"/dashboard/environments/{slug}/sums"
    browser = Browser(hub, new_user()[1])
    browser.open(path)
    assert browser.submit(f"{path}/star") == 200
    assert "1 star" in browser.texts(".standing span")
    assert browser.open("/?starred=yes") == 200
    assert browser.texts(".environments h2 a") == [f"{slug}/sums"]
    browser.open(path)
    assert browser.submit(f"{path}/star") == 200
    assert "0 stars" in browser.texts(".standing span")
    visitor = Browser(hub)
    visitor.open(path)
    assert not visitor.page.css(f'form[action="{path}/star"]')
    assert visitor.client.post(f"{path}/star", data={"form_token": "x", "starred": "yes"}).status_code == 401


def test_an_environment_that_is_deprecated_says_so(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "sums")
        body = {"status": "deprecated", "reason": f"use totals {EVIL}"}
        answer(client.put(f"/environmentshub/{slug}/sums/project-status", json=body))
    visitor = Browser(hub)
    visitor.open(f"/dashboard/environments/{slug}/sums")
    assert visitor.texts(".notice.warn") == [f"This environment is deprecated: “use totals {EVIL}”."]


def test_a_fork_names_its_source_to_those_who_may_see_it(hub: RunningHub, new_user: NewUser) -> None:
    (slug, key), (other, other_key) = new_user(), new_user()
    with hub.client(key) as client, hub.client(other_key) as forker:
        publish(client, "sums")
        answer(forker.post(f"/environmentshub/{slug}/sums/fork", json={}))
        visitor = Browser(hub)
        visitor.open(f"/dashboard/environments/{other}/sums")
        assert visitor.links("main a")[f"{slug}/sums"] == f"/dashboard/environments/{slug}/sums"
        answer(client.post("/environmentshub/resolve", json={"name": "sums", "visibility": "PRIVATE"}))
        visitor.open(f"/dashboard/environments/{other}/sums")
        assert f"{slug}/sums" not in visitor.words


def test_evaluations_are_plotted_by_model_and_listed_in_a_table(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = publish(client, "sums")
        for model, reward in (("tiny", 0.25), ("large", 0.75), ("large", 0.5), (f"{EVIL}", 0.125)):
            body = {
                "name": f"{model} once", "model_name": model, "environments": [{"id": push.environment_id}],
                "is_public": True,
            }  # fmt: skip
            made = answer(client.post("/evaluations/", json=body))["evaluation_id"]
            samples = [{"example_id": number, "reward": reward} for number in range(2)]
            answer(client.post(f"/evaluations/{made}/samples", json={"samples": samples}))
    visitor = Browser(hub)
    assert visitor.open(f"/dashboard/environments/{slug}/sums/evaluations") == 200
    assert visitor.texts(".plot desc") == [f"large: 0.500; tiny: 0.250; {EVIL}: 0.125"]
    assert [mark.attributes["cx"] for mark in visitor.page.css("circle.newest")] == ["50.0%", "25.0%", "12.5%"]
    assert [mark.attributes["cx"] for mark in visitor.page.css("circle.older")] == ["75.0%"]
    assert visitor.texts(".evaluations tbody .number:nth-child(3)") == ["0.125", "0.500", "0.750", "0.250"]
    assert EVIL not in visitor.response.text
    visitor.open(f"/dashboard/environments/{slug}/sums")
    assert len(visitor.page.css(".plot circle")) == 4


@pytest.mark.parametrize(
    "path", ["/dashboard/environments/no/such", "/dashboard/nothing", "/nowhere", "/dashboard/owners/no-one"]
)
def test_what_is_not_there_has_a_page_that_says_so(hub: RunningHub, path: str) -> None:
    visitor = Browser(hub)
    assert visitor.open(path) == 404
    assert visitor.texts("h1") == ["Not found"]
    assert visitor.links("main a")["look at all environments"] == "/"


def test_values_that_make_no_sense_have_a_page_and_programs_get_json(hub: RunningHub) -> None:
    visitor = Browser(hub)
    assert visitor.open("/?page=none") == 422
    assert "not possible here: page" in visitor.words
    program = httpx.get(f"{hub.url}/api/v1/nothing", trust_env=False)
    assert (program.status_code, program.json()) == (404, {"detail": "Not Found"})
    assert visitor.client.get("/api/v1/nothing").json() == {"detail": "Not Found"}


def test_every_page_is_shut_off_from_scripts_and_from_other_sites(hub: RunningHub) -> None:
    visitor = Browser(hub)
    for path in ("/", "/dashboard/signin", "/dashboard/nothing"):
        visitor.open(path)
        policy = visitor.response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'")
        assert "frame-ancestors 'none'" in policy
        assert visitor.response.headers["x-content-type-options"] == "nosniff"
        assert visitor.response.headers["cache-control"] == "no-store"
        assert not visitor.page.css("script, style, [style], [onclick], [onload]")


def test_hostile_names_descriptions_and_tags_are_shown_as_words(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(
            client, "plain", description=f'"><img src=x onerror=alert(1)> {EVIL}',
            tags=[EVIL, '" autofocus onfocus="x'],
            readme=f"{EVIL}\n\n[x](javascript:alert(1))",
        )  # fmt: skip
    visitor = Browser(hub)
    for path in (
        f"/?owner={slug}",
        f"/dashboard/environments/{slug}/plain",
        f"/?q={EVIL}&tag={EVIL}&owner={EVIL[:30]}",
    ):
        assert visitor.open(path) == 200
        assert not visitor.page.css("script, main img, [onerror], [onfocus], [autofocus], a[href^=javascript]")
        assert EVIL in visitor.words
