"""Index pages that are given again while nothing has changed: to nobody in particular, and never a moment too long."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hub_server.registry.index import JSON_TYPE
from hub_server.registry.kept_answers import KeptAnswers
from tests.running_hub import Push, RunningHub

NewUser = Callable[[], tuple[str, str]]
PAGE = "/index/somebody/simple/a-name/"


class CountingApp:
    """Answers with how often it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.asked = 0
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        self.asked += 1
        scope["route"] = "the route"
        await Response(f"answer {self.asked}", status_code=self._status)(scope, receive, send)


def read(app: KeptAnswers, path: str = PAGE, method: str = "GET", **headers: str) -> str:
    """Return the body that `app` answers with."""

    async def ask() -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await client.request(method, path, headers=named)).text

    return asyncio.run(ask())


def test_a_page_is_given_again_until_something_is_committed() -> None:
    commits = [1]
    app = KeptAnswers(CountingApp(), lambda: commits[0])
    assert [read(app), read(app)] == ["answer 1", "answer 1"]
    commits[0] = 2
    assert [read(app), read(app)] == ["answer 2", "answer 2"]


@pytest.mark.parametrize(
    "headers",
    [{"accept": "text/html"}, {"accept_encoding": "br"}, {"if_none_match": '"x"'}, {"host": "elsewhere"}],
    ids=lambda sent: [*sent],
)
def test_what_an_answer_depends_on_keeps_two_apart(headers: dict[str, str]) -> None:
    app = KeptAnswers(CountingApp(), lambda: 1)
    assert [read(app), read(app, **headers), read(app)] == ["answer 1", "answer 2", "answer 1"]


@pytest.mark.parametrize(
    ("path", "method", "headers"),
    [
        (PAGE, "GET", {"authorization": "Bearer x"}),
        (PAGE + "?a=b", "GET", {}),
        (PAGE, "POST", {}),
        ("/index/somebody/files/0/a.whl", "GET", {}),
        ("/api/v1/environmentshub", "GET", {}),
    ],
)
def test_everything_else_is_passed_on(path: str, method: str, headers: dict[str, str]) -> None:
    app = KeptAnswers(CountingApp(), lambda: 1)
    assert [read(app, path, method, **headers) for _ in range(2)] == ["answer 1", "answer 2"]


def test_links_to_an_encrypted_and_to_a_plain_address_are_kept_apart() -> None:
    app = KeptAnswers(CountingApp(), lambda: 1)
    assert [read(app), read(app, f"https://hub{PAGE}"), read(app)] == ["answer 1", "answer 2", "answer 1"]


def test_a_refusal_is_not_kept() -> None:
    app = KeptAnswers(CountingApp(status=404), lambda: 1)
    assert [read(app), read(app)] == ["answer 1", "answer 2"]


def test_an_answer_made_while_something_was_committed_is_not_given_again() -> None:
    commits = [1]

    class Committing(CountingApp):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await super().__call__(scope, receive, send)
            commits[0] += self.asked == 1

    app = KeptAnswers(Committing(), lambda: commits[0])
    assert [read(app), read(app), read(app)] == ["answer 1", "answer 2", "answer 2"]


def test_all_are_dropped_when_they_are_too_large_together() -> None:
    app = KeptAnswers(CountingApp(), lambda: 1, max_bytes=10_000)
    assert [read(app, f"/simple/p{number}/") for number in (1, 2, 3)] == ["answer 1", "answer 2", "answer 3"]
    assert [read(app, f"/simple/p{number}/") for number in (3, 1)] == ["answer 3", "answer 4"]


def test_a_kept_page_shows_at_once_what_changed_and_what_another_process_changed(
    hub: RunningHub, new_user: NewUser
) -> None:
    slug, key = new_user()
    page = f"{hub.url}/index/{slug}/simple/kept-page/"
    with hub.client(key) as client, httpx.Client(trust_env=False) as nobody:
        for number in range(1, 4):
            Push(client, "kept-page", f"0.{number}.0").run()
            answers = [nobody.get(page, headers={"Accept": JSON_TYPE}) for _ in range(3)]
            assert [len(each.json()["files"]) for each in answers] == [number] * 3
        assert len({each.headers["etag"] for each in answers}) == 1
        assert len({each.headers["x-request-id"] for each in answers}) == 3
        seen = {"Accept": JSON_TYPE, "If-None-Match": answers[0].headers["etag"]}
        assert [nobody.get(page, headers=seen).status_code for _ in range(2)] == [304, 304]
        head = nobody.head(page, headers={"Accept": JSON_TYPE})
        assert (head.content, head.headers["etag"]) == (b"", answers[0].headers["etag"])
        with closing(sqlite3.connect(hub.data_dir / "hub.db")) as other, other:
            other.execute("UPDATE environments SET visibility = 'PRIVATE' WHERE name = 'kept-page'")
        assert nobody.get(page, headers={"Accept": JSON_TYPE}).status_code == 404
        mine = {"Accept": JSON_TYPE, "Authorization": f"Bearer {key}"}
        assert [nobody.get(page, headers=mine).status_code for _ in range(2)] == [200, 200]
        assert nobody.get(page, headers={"Accept": JSON_TYPE}).status_code == 404


def test_answers_from_memory_are_logged_like_all_others(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, httpx.Client(trust_env=False) as nobody:
        Push(client, "logged-page", "0.1.0").run()
        for _ in range(3):
            assert nobody.get(f"{hub.url}/index/{slug}/simple/logged-page/").is_success
    assert hub.log.count(f"path=/index/{slug}/simple/logged-page/") == 3
