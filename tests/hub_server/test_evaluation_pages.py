"""The pages of an evaluation: what they show, to whom, and that what clients sent cannot break out of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.hub_server.test_login_challenge import PRIVATE_KEY, fill_in, pem_of
from tests.running_hub import Push, RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
EVIL = '<script>alert("x")</script>'


@pytest.fixture
def browser(hub: RunningHub) -> httpx.Client:
    return httpx.Client(base_url=hub.url, timeout=30, trust_env=False)


def rollouts(count: int) -> list[dict[str, Any]]:
    call = {"function": {"name": "add", "arguments": '{"a": 2}'}}
    return [
        {
            "example_id": number, "rollout_number": 0, "reward": number / 100,
            "prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": f"question {number}"}],
            "completion": [{"role": "assistant", "content": f"{EVIL} {number}", "tool_calls": [call]}],
            "answer": f"answer {number}", "stop_condition": "max_turns_reached", "error": None,
        }
        for number in range(count)
    ]  # fmt: skip


def make_evaluation(client: httpx.Client, slug: str, *, count: int, is_public: bool) -> str:
    environment = Push(client, "shown", "0.1.0")
    assert environment.run().is_success
    body = {
        "name": f"a run of {EVIL}", "model_name": "tiny", "environments": [{"id": environment.environment_id}],
        "metadata": {"num_examples": 120, "sampling_args": {"temperature": 0.7}}, "metrics": {"right": 0.25},
        "is_public": is_public, "tags": ["nightly"],
    }  # fmt: skip
    evaluation = str(answer(client.post("/evaluations/", json=body))["evaluation_id"])
    answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": rollouts(count)}))
    return evaluation


def test_an_evaluation_is_shown_with_its_figures_and_its_rollouts_in_pages(
    hub: RunningHub, new_user: NewUser, browser: httpx.Client
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        evaluation = make_evaluation(client, slug, count=120, is_public=True)
    page = browser.get(f"/dashboard/evaluations/{evaluation}")
    assert page.status_code == 200
    for words in (
        "0.595",
        "120 of 120 rollouts",
        "tiny",
        f"{slug}/shown",
        "right",
        "temperature",
        "nightly",
        "Page 1 of 3",
    ):
        assert words in page.text, words
    assert EVIL not in page.text
    assert "example 49," in page.text
    assert "example 50," not in page.text
    assert 'rel="prev"' not in page.text
    last = browser.get(f"/dashboard/evaluations/{evaluation}", params={"page": 3}).text
    assert "example 119," in last
    assert 'rel="next"' not in last
    assert "There is no such page" in browser.get(f"/dashboard/evaluations/{evaluation}", params={"page": 4}).text


def test_a_rollout_is_shown_message_by_message(hub: RunningHub, new_user: NewUser, browser: httpx.Client) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        evaluation = make_evaluation(client, slug, count=2, is_public=True)
    overview = browser.get(f"/dashboard/evaluations/{evaluation}").text
    links = re.findall(r'href="(/dashboard/evaluations/\w+/samples/\w+)"', overview)
    assert len(links) == 2
    page = browser.get(links[1])
    assert page.status_code == 200
    for words in ("be brief", "question 1", "answer 1", "max_turns_reached", "add({&#34;a&#34;: 2})", "0.010"):
        assert words in page.text, words
    assert EVIL not in page.text
    assert browser.get(f"/dashboard/evaluations/{evaluation}/samples/none").status_code == 404


def test_a_private_evaluation_is_shown_to_its_owner_only(
    hub: RunningHub, new_user: NewUser, browser: httpx.Client
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        evaluation = make_evaluation(client, slug, count=1, is_public=False)
    path, environment = f"/dashboard/evaluations/{evaluation}", f"/dashboard/environments/{slug}/shown"
    assert browser.get(path).status_code == 404
    assert evaluation not in browser.get(environment).text
    challenge = answer(
        browser.post("/api/v1/auth_challenge/generate", json={"encryptionPublicKey": pem_of(PRIVATE_KEY)})
    )
    assert fill_in(browser, challenge["challenge"], api_key=key).status_code == 200
    page = browser.get(path)
    assert page.status_code == 200
    assert "only its owner" in page.text
    link = re.findall(r'href="(/dashboard/evaluations/\w+/samples/\w+)"', page.text)[0]
    assert browser.get(link).status_code == 200
    with httpx.Client(base_url=hub.url, trust_env=False) as stranger:
        assert stranger.get(link).status_code == 404
    listed = browser.get(environment).text
    assert evaluation in listed
    assert "Private" in listed


def test_the_page_of_an_environment_lists_its_public_evaluations(
    hub: RunningHub, new_user: NewUser, browser: httpx.Client
) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        evaluation = make_evaluation(client, slug, count=3, is_public=True)
    page = browser.get(f"/dashboard/environments/{slug}/shown").text
    assert f"/dashboard/evaluations/{evaluation}" in page
    assert "0.010" in page
    assert "Running" in page
    assert EVIL not in page
