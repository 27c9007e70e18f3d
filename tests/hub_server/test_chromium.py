"""The pages in headless Chromium: what people do works without scripts, and everybody can read and reach everything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.fake_sandbox_node import create, fake_node
from tests.hub_server.pages import Browser as Visitor
from tests.hub_server.test_login_challenge import PRIVATE_KEY, pem_of
from tests.hub_server.test_pages import publish
from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
CHROMIUM = os.environ.get("PRIME_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")
_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_OPTIONS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def shown(hub: RunningHub) -> dict[str, str]:
    """The paths of all kinds of pages, with something on each."""
    with hub.client(hub.key_of("chromium-user")) as client:
        push = publish(client, "seen", "0.1.0")
        publish(client, "seen", "0.2.0", readme=f"# Seen\n\n|{' a long heading |' * 8}\n|{'---|' * 8}\n|{' 1 |' * 8}\n")
        answer(client.put("/environmentshub/chromium-user/seen/@0.1.0/yank", json={"reason": "wrong sums"}))
        body = {
            "name": "nightly",
            "model_name": "tiny",
            "environments": [{"id": push.environment_id}],
            "is_public": True,
        }
        evaluation = answer(client.post("/evaluations/", json=body))["evaluation_id"]
        said = [{"role": "assistant", "content": "4"}]
        samples = [
            {"example_id": number, "reward": number / 4, "prompt": "2 + 2?", "completion": said} for number in range(5)
        ]
        answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": samples}))
        answer(client.post("/teams", json={"slug": "chromium-team"}))
        with fake_node() as node:
            node.register(hub)
            sandbox = create(client, labels=["shown"], docker_image="no-such:1")["id"]
            create(client, start_command={"executable": "python3", "args": ["-m", "http.server"]})
        login = answer(client.post("/auth_challenge/generate", json={"encryptionPublicKey": pem_of(PRIVATE_KEY)}))
    visitor = Visitor(hub)
    visitor.open(f"/dashboard/evaluations/{evaluation}")
    environment = "/dashboard/environments/chromium-user/seen"
    return {
        "home": "/", "search": "/?q=seen&tag=toy", "environment": environment, "versions": f"{environment}/versions",
        "version": f"{environment}/versions/0.1.0", "files": f"{environment}/versions/0.2.0/files",
        "file": f"{environment}/versions/0.2.0/files/seen.py", "evaluations": f"{environment}/evaluations",
        "evaluation": f"/dashboard/evaluations/{evaluation}", "rollout": visitor.links("tbody a")["example 0"],
        "login": f"/dashboard/tokens/challenge?code={login['challenge']}", "owner": "/dashboard/owners/chromium-user",
        "sign in": "/dashboard/signin", "keys": "/dashboard/settings/keys", "teams": "/dashboard/settings/teams",
        "team": "/dashboard/settings/teams/chromium-team", "audit": "/dashboard/settings/audit",
        "sandboxes": "/dashboard/sandboxes", "sandbox": f"/dashboard/sandboxes/{sandbox}",
        "nothing": "/dashboard/environments/no/such",
    }  # fmt: skip


def sign_in(page: Page, hub: RunningHub, key: str, wanted: str = "/") -> None:
    page.goto(f"{hub.url}/dashboard/signin?next={wanted}")
    page.get_by_label("An API key of yours").fill(key)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()


def test_everything_that_people_do_works_without_scripts(hub: RunningHub, new_user: NewUser, chromium: Browser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        publish(client, "sums")
    page = chromium.new_context(java_script_enabled=False).new_page()
    sign_in(page, hub, key)
    page.get_by_role("searchbox", name="Search environments").fill(f"{slug} sums")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=f"{slug}/sums").click()
    page.get_by_role("button", name="Star").click()
    assert page.get_by_text("1 star", exact=True).is_visible()
    page.get_by_role("link", name="0.1.0", exact=True).click()
    page.get_by_role("link", name="Browse the source").click()
    page.get_by_role("link", name="sums.py").click()
    assert page.get_by_text("def load_environment():").is_visible()
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("radio", name="Only this:").check()
    page.get_by_label("Environments", exact=True).select_option("write")
    page.get_by_role("button", name="Make the key").click()
    made = page.locator("pre.copy").inner_text()
    with hub.client(made) as client:
        assert client.get("/environmentshub/").is_success
    page.get_by_text("Revoke laptop").click()
    page.get_by_role("row", name="laptop").get_by_role("button", name="Revoke for good").click()
    with hub.client(made) as client:
        assert client.get("/environmentshub/").status_code == 401
    page.get_by_role("button", name="Sign out").click()
    assert page.get_by_role("link", name="Sign in").is_visible()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1240, "light"),
        (320, "dark"),
        pytest.param(1240, "dark", marks=pytest.mark.slow),
        pytest.param(320, "light", marks=pytest.mark.slow),
    ],
)
def test_every_page_passes_the_rules_of_accessibility_and_fits_its_window(
    hub: RunningHub, chromium: Browser, shown: dict[str, str], scheme: str, width: int
) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})  # type: ignore[arg-type]
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    sign_in(page, hub, hub.key_of("chromium-user"))
    axe = Axe()
    for name, path in shown.items():
        page.goto(hub.url + path)
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]})
        assert not found.response["violations"], (name, found.generate_report())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than its window"
    assert not errors


def test_a_person_with_a_keyboard_sees_where_they_are_and_skips_to_the_content(
    hub: RunningHub, chromium: Browser, shown: dict[str, str]
) -> None:
    page = chromium.new_context().new_page()
    page.goto(hub.url + shown["environment"])
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the content"
    assert skip.evaluate("node => node.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.keyboard.press("Tab")
    assert page.locator(":focus").evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
