"""The login challenge on the wire, and the page that approves it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from hub_server.accounts import challenges
from hub_server.accounts.tables import LoginChallenge
from hub_server.database import Database, now
from hub_server.errors import NotFound
from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]
PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem_of(key: rsa.RSAPrivateKey) -> str:
    """Return the public half as the clients send it."""
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


@dataclass
class Waiting:
    """A client that asked to log in."""

    hub: RunningHub
    code: str
    token: str

    def ask(self, token: str | None = None) -> httpx.Response:
        """Ask after the result."""
        with self.hub.client(token or self.token) as client:
            return client.get("/auth_challenge/status", params={"challenge": self.code})

    def key(self) -> str:
        """Return the API key that the approval made."""
        oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
        return PRIVATE_KEY.decrypt(base64.b64decode(answer(self.ask())["result"]), oaep).decode()


@pytest.fixture
def waiting(hub: RunningHub) -> Waiting:
    """A login that nobody has answered yet."""
    with hub.client() as client:
        response = client.post("/auth_challenge/generate", json={"encryptionPublicKey": pem_of(PRIVATE_KEY)})
    assert response.status_code == 200
    return Waiting(hub, response.json()["challenge"], response.json()["status_auth_token"])


@pytest.fixture
def browser(hub: RunningHub) -> httpx.Client:
    """A browser without scripts: it keeps cookies and posts forms."""
    return httpx.Client(base_url=hub.url, trust_env=False)


def fill_in(browser: httpx.Client, code: str, **fields: str) -> httpx.Response:
    """Open the approval page and post its form."""
    page = browser.get("/dashboard/tokens/challenge", params={"code": code})
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
    return browser.post("/dashboard/tokens/challenge", data={**hidden, "decision": "approve", **fields})


def test_a_key_pasted_into_the_page_logs_the_terminal_in_with_a_key_of_its_own(
    hub: RunningHub, waiting: Waiting, browser: httpx.Client, new_user: NewUser
) -> None:
    slug, key = new_user()
    assert answer(waiting.ask()) == {"result": None}
    page = browser.get("/dashboard/tokens/challenge", params={"code": waiting.code})
    assert waiting.code in page.text
    assert "script" not in page.headers["content-security-policy"]
    done = fill_in(browser, waiting.code, api_key=key)
    assert done.status_code == 200
    assert "Approved" in done.text
    minted = waiting.key()
    assert minted != key
    with hub.client(minted) as client:
        assert answer(client.get("/user/whoami"))["data"]["slug"] == slug
    assert minted not in done.text


def test_a_browser_that_is_signed_in_approves_without_a_key(
    hub: RunningHub, waiting: Waiting, browser: httpx.Client, new_user: NewUser
) -> None:
    slug, key = new_user()
    fill_in(browser, waiting.code, api_key=key)
    with hub.client() as client:
        answered = answer(client.post("/auth_challenge/generate", json={"encryptionPublicKey": pem_of(PRIVATE_KEY)}))
    second = Waiting(hub, answered["challenge"], answered["status_auth_token"])
    assert f"acts as <strong>{slug}</strong>" in browser.get(f"/dashboard/tokens/challenge?code={second.code}").text
    assert fill_in(browser, second.code).status_code == 200
    assert second.key().startswith("prime_")


def test_a_script_approves_with_an_api_key(hub: RunningHub, waiting: Waiting) -> None:
    with hub.client(hub.admin_key) as client:
        assert client.post("/auth_challenge/approve", json={"challenge": waiting.code}).is_success
        assert client.post("/auth_challenge/approve", json={"challenge": waiting.code}).status_code == 409
    assert waiting.key().startswith("prime_")


def test_a_form_from_elsewhere_is_refused(hub: RunningHub, waiting: Waiting, browser: httpx.Client) -> None:
    posted = {"code": waiting.code, "form_token": "guess", "decision": "approve", "api_key": hub.admin_key}
    assert browser.post("/dashboard/tokens/challenge", data=posted).status_code == 403
    browser.headers["Origin"] = "http://elsewhere.example"
    assert fill_in(browser, waiting.code, api_key=hub.admin_key).status_code == 403
    assert answer(waiting.ask()) == {"result": None}


def test_a_wrong_key_or_none_approves_nothing(waiting: Waiting, browser: httpx.Client) -> None:
    for key, words in (("prime_wrong", "wrong or was revoked"), ("", "Paste an API key first")):
        refused = fill_in(browser, waiting.code, api_key=key)
        assert refused.status_code == 403
        assert words in refused.text
    assert answer(waiting.ask()) == {"result": None}


def test_a_denied_login_counts_as_expired(hub: RunningHub, waiting: Waiting, browser: httpx.Client) -> None:
    assert "Denied" in fill_in(browser, waiting.code, api_key=hub.admin_key, decision="deny").text
    assert waiting.ask().status_code == 404


def test_the_result_needs_the_token_of_the_challenge(hub: RunningHub, waiting: Waiting) -> None:
    assert waiting.ask("another").status_code == 401
    with hub.client() as client:
        assert client.get("/auth_challenge/status", params={"challenge": waiting.code}).status_code == 401
    assert Waiting(hub, "UNKN-OWN", waiting.token).ask().status_code == 404


@pytest.mark.parametrize("pem", ["nonsense", pem_of(rsa.generate_private_key(public_exponent=65537, key_size=1024))])
def test_a_weak_or_broken_public_key_is_refused(hub: RunningHub, pem: str) -> None:
    with hub.client() as client:
        assert client.post("/auth_challenge/generate", json={"encryptionPublicKey": pem}).status_code == 400


def test_a_page_for_an_unknown_code_says_so(browser: httpx.Client) -> None:
    page = browser.get("/dashboard/tokens/challenge", params={"code": '"><script>'})
    assert page.status_code == 404
    assert "<script>" not in page.text


def test_a_challenge_expires(tmp_path: object) -> None:
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    with database.write() as session:
        new = challenges.create_challenge(session, pem_of(PRIVATE_KEY), asked_from="here")
        assert challenges.result_of(session, new.code.lower(), new.status_token) is None
        session.get_one(LoginChallenge, new.code).expires_at = now() - timedelta(seconds=1)
        session.flush()
        with pytest.raises(NotFound, match="expired"):
            challenges.result_of(session, new.code, new.status_token)
