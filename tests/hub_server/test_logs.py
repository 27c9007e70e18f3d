"""The log: what happened, request by request, and no secret."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.running_hub import Push, RunningHub, answer, start_hub


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that logs everything, as JSON."""
    running = start_hub(tmp_path_factory.mktemp("logs") / "data", "--log-format", "json", "--log-level", "debug")
    yield running
    running.end()


def requests_of(hub: RunningHub, last: httpx.Response) -> list[dict[str, Any]]:
    """The lines of requests up to that of this answer at least, which is written after it; each line is an object."""
    deadline = time.monotonic() + 10
    while True:
        whole, _, _being_written = hub.log.rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        if last.headers["x-request-id"] in {line.get("request_id") for line in lines}:
            return [line for line in lines if line["message"] == "request"]
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Secrets:
    """Collects what a client sends and gets that nobody else may know."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def client(self, hub: RunningHub, key: str | None = None) -> httpx.Client:
        """Return a client whose secrets are noted."""
        client = hub.client(key)
        client.event_hooks = {"request": [self._of_request], "response": [self._of_response]}
        return client

    def note(self, *secrets: str) -> None:
        """Note secrets, also in the form that they have in a URL."""
        self.found |= {form for secret in secrets for form in (secret, unquote(secret)) if len(form) >= 8}

    def _of_request(self, request: httpx.Request) -> None:
        self.note(request.headers.get("authorization", "").partition(" ")[2], *request.url.params.values())
        self.note(*(part.partition("=")[2] for part in request.headers.get("cookie", "").split("; ")))
        if "/uploads/" in request.url.path:
            self.note(request.url.path.rpartition("/")[2])

    def _of_response(self, response: httpx.Response) -> None:
        self.note(*response.cookies.values())


def log_in(hub: RunningHub, secrets: Secrets, key: str) -> None:
    """Approve a login in a browser, with a key that is pasted into the form."""
    pem = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    text = pem.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    with secrets.client(hub) as client:
        new = answer(client.post("/auth_challenge/generate", json={"encryptionPublicKey": text}))
        secrets.note(new["challenge"], new["status_auth_token"])
        page = client.get(f"{hub.url}/dashboard/tokens/challenge", params={"code": new["challenge"]})
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        secrets.note(hidden["form_token"])
        form = {**hidden, "decision": "approve", "api_key": key}
        assert client.post(f"{hub.url}/dashboard/tokens/challenge", data=form).is_success
    with secrets.client(hub, new["status_auth_token"]) as client:
        asked = client.get("/auth_challenge/status", params={"challenge": new["challenge"]})
        secrets.note(answer(asked)["result"])


def test_no_secret_of_a_push_a_login_and_an_install_is_in_the_log(talkative: RunningHub, tmp_path: Path) -> None:
    hub, secrets = talkative, Secrets()
    key = hub.key_of("the-publisher")
    secrets.note(key, hub.admin_key, base64.b64encode(f"__token__:{key}".encode()).decode())
    with secrets.client(hub, key) as client:
        push = Push(client, "secretive", "0.1.0", visibility="PRIVATE")
        push.resolve()
        url = answer(push.announce_wheel())["data"]["upload_url"]
        secrets.note(urlsplit(url).path.rpartition("/")[2])
        assert client.put(f"{url}/", content=b"not the wheel").status_code == 400
        assert push.run().is_success
        index = answer(client.get("/environmentshub/the-publisher/secretive/@latest"))["data"]["install_index_url"]
    log_in(hub, secrets, key)
    token = urlsplit(index).password
    assert token is not None
    secrets.note(token)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "--dest",
        str(tmp_path),
    ]
    subprocess.run([*command, "--index-url", index, "secretive"], check=True, capture_output=True)
    nobody = secrets.client(hub)
    assert nobody.get("/environmentshub/", headers={"Authorization": "Bearer prime_guessed-wrong"}).status_code == 401
    assert nobody.put(f"{hub.url}/api/v1/upload/misspelt-{token}").status_code == 404
    refused = nobody.post("/auth_challenge/generate", json={"encryptionPublicKey": "a-private-key"})
    assert refused.status_code == 400
    secrets.note("a-private-key")
    routes = {line["route"] for line in requests_of(hub, refused)}
    assert {"/api/v1/uploads/{token}", "/index/{owner}/simple/{project}/", "/dashboard/tokens/challenge"} <= routes
    assert len(secrets.found) > 12
    assert [secret for secret in secrets.found if secret in hub.log] == []


def test_a_request_is_one_line_with_who_what_and_how_long(talkative: RunningHub) -> None:
    hub = talkative
    with hub.client(hub.key_of("a-reader")) as client:
        asked = client.get("/environmentshub/Some%0AOwner/thing/@1.0/", headers={"X-Request-ID": "from-the-proxy-1"})
        assert client.get("/user/whoami").headers["x-request-id"] not in ("", "from-the-proxy-1")
    (line,) = [line for line in requests_of(hub, asked) if line["request_id"] == "from-the-proxy-1"]
    assert line["path"] == "/api/v1/environmentshub/Some%0AOwner/thing/@1.0"
    assert (line["method"], line["status"], line["user"], line["client"]) == ("GET", 404, "a-reader", "127.0.0.1")
    assert line["route"] == "/api/v1/environmentshub/{owner}/{name}/@{version}"
    assert line["bytes_out"] > 0
    assert 0 < line["duration_ms"] < 10_000


@pytest.mark.parametrize("sent", ["short", "with blanks in it", "x" * 65, 'with-"quotes"'])
def test_an_odd_request_id_is_replaced(talkative: RunningHub, sent: str) -> None:
    with talkative.client() as client:
        assert client.get("/environmentshub/", headers={"X-Request-ID": sent}).headers["x-request-id"] != sent


def test_a_failure_is_logged_with_its_traceback_and_without_its_values(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        with sqlite3.connect(hub.data_dir / "hub.db") as database:
            (key_hash,) = database.execute("SELECT key_hash FROM api_keys").fetchone()
            database.execute("ALTER TABLE api_keys RENAME TO elsewhere")
        with hub.client(hub.admin_key) as client:
            failed = client.get("/user/whoami", headers={"X-Request-ID": "this-one-fails"})
        assert failed.status_code == 500
    finally:
        hub.end()
    assert "Traceback" in hub.log
    assert "no such table: api_keys" in hub.log
    assert key_hash not in hub.log
    assert re.search(r"warning request method=GET .* status=500 .* id=this-one-fails", hub.log)


def test_the_level_leaves_lines_out(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data", "--log-level", "warning")
    httpx.get(f"{hub.url}/", trust_env=False)
    hub.end()
    assert "request" not in hub.log


def test_monitors_are_logged_only_for_debugging(hub: RunningHub, talkative: RunningHub) -> None:
    for running in (hub, talkative):
        for path in ("/healthz", "/readyz"):
            ready = httpx.get(running.url + path, trust_env=False)
            assert ready.is_success
    assert "/readyz" in {line["route"] for line in requests_of(talkative, ready)}
    assert "/readyz" not in hub.log
