"""Monitoring a hub, and reaching it through a proxy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hub_server.app import create_app
from hub_server.blobs import FolderBlobs
from hub_server.database import Database
from hub_server.errors import NotServing
from hub_server.operation.addresses import read_public_url
from hub_server.sandboxes.fleet import Fleet
from hub_server.secrets.vault import Vault
from hub_server.services import Services
from hub_server.settings import open_settings
from hub_server.signing import Signer
from tests.running_hub import Push, RunningHub, answer, start_hub

TOKEN = "a-token-for-the-monitor"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that is known as https://hub.example, with a token for its metrics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIME_HUB_METRICS_TOKEN", TOKEN)
        patch.setenv("PRIME_HUB_PUBLIC_URL", "https://hub.example/")
        running = start_hub(tmp_path_factory.mktemp("operation") / "data")
    yield running
    running.end()


def metrics_of(hub: RunningHub, token: str) -> dict[tuple[str, str], float]:
    """Return the metrics by name and the value of their route or way."""
    response = httpx.get(f"{hub.url}/metrics", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert response.status_code == 200
    samples = [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]
    return {
        (sample.name, sample.labels.get("route") or sample.labels.get("way") or ""): sample.value for sample in samples
    }


def test_metrics_tell_of_requests_uploads_and_what_is_stored(proxied: RunningHub) -> None:
    with proxied.client(proxied.admin_key) as client:
        push = Push(client, "counted", "0.1.0")
        before = metrics_of(proxied, TOKEN)
        push.resolve()
        announced = answer(push.announce_wheel(wheel_only=True))["data"]
        upload = announced["upload_url"].replace("https://hub.example", proxied.url)
        assert httpx.put(upload, content=push.wheel, trust_env=False).is_success
        assert push.finalize("wheels", announced["wheel_id"]).is_success
    after = metrics_of(proxied, proxied.admin_key)
    assert after["prime_hub_uploads_total", "url"] == 1
    assert after["prime_hub_requests_total", "/api/v1/uploads/{token}"] == 1
    assert after["prime_hub_request_duration_seconds_count", "/api/v1/uploads/{token}"] == 1
    assert after["prime_hub_received_bytes_total", ""] > len(push.wheel)
    assert after["prime_hub_sent_bytes_total", ""] > before["prime_hub_sent_bytes_total", ""]
    assert after["prime_hub_versions", ""] == before["prime_hub_versions", ""] + 1
    assert after["prime_hub_environments", ""] == 1
    assert sum(value for (name, _), value in after.items() if name == "prime_hub_checks") == 1
    assert after["prime_hub_database_bytes", ""] > 4096
    assert after["prime_hub_disk_free_bytes", ""] > 0


def test_metrics_are_for_an_administrator_or_the_bearer_of_their_token(proxied: RunningHub) -> None:
    for token, status in (("", 401), ("prime_wrong", 401), (TOKEN + "x", 401), (proxied.key_of("a-user"), 403)):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        assert httpx.get(f"{proxied.url}/metrics", headers=headers, trust_env=False).status_code == status
    with proxied.client(TOKEN) as client:
        assert client.get("/user/whoami").status_code == 401, "the token is good for nothing else"


def test_a_short_token_for_metrics_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIME_HUB_METRICS_TOKEN", "short")
    with pytest.raises(NotServing, match="fewer than 16 characters"):
        open_settings(tmp_path, None)


def test_a_hub_whose_parts_answer_is_ready(hub: RunningHub) -> None:
    ready = httpx.get(f"{hub.url}/readyz", trust_env=False)
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "database": "ok", "blobs": "ok"}


def test_a_hub_without_its_blob_store_is_not_ready_and_says_so(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        shutil.rmtree(hub.data_dir / "blobs" / "incoming")
        response = httpx.get(f"{hub.url}/readyz", trust_env=False)
        assert response.status_code == 503
        assert response.json()["database"] == "ok"
        assert response.json()["blobs"] == "does not answer; the log says why"
        assert str(tmp_path) not in response.text
        assert "part=blobs" in hub.log
        assert httpx.get(f"{hub.url}/healthz", trust_env=False).is_success
    finally:
        hub.end()


async def test_a_hub_without_its_database_is_not_ready(tmp_path: Path) -> None:
    settings = open_settings(tmp_path, f"sqlite:///{tmp_path}/no-such-folder/hub.db")
    database = Database(settings.database_url)
    vault = Vault(bytes(32))
    services = Services(
        settings, database, FolderBlobs(settings.blob_dir), Signer(b"secret"), vault, Fleet(database, vault)
    )
    transport = httpx.ASGITransport(create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
        response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["database"].startswith("does not answer")
    assert response.json()["blobs"] == "ok"


def test_links_behind_a_proxy_start_with_the_public_url(proxied: RunningHub) -> None:
    with proxied.client(proxied.admin_key) as client:
        push = Push(client, "linked", "0.1.0", visibility="PRIVATE")
        push.resolve()
        assert answer(push.announce_wheel())["data"]["upload_url"].startswith("https://hub.example/api/v1/uploads/")
    page = httpx.get(f"{proxied.url}/dashboard/tokens/challenge", params={"code": "none"}, trust_env=False)
    assert "http://127.0.0.1" not in page.text


def test_a_proxy_on_this_machine_is_believed_about_the_scheme(hub: RunningHub) -> None:
    with hub.client(hub.admin_key) as client:
        push = Push(client, "forwarded", "0.1.0")
        push.resolve()
        client.headers.update({"X-Forwarded-Proto": "https", "Host": "proxied.example"})
        assert answer(push.announce_wheel())["data"]["upload_url"].startswith("https://proxied.example/")


def test_a_proxy_that_is_not_trusted_is_not_believed(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data", "--trusted-proxies", "10.0.0.0/8")
    try:
        with hub.client(hub.admin_key) as client:
            push = Push(client, "forwarded", "0.1.0")
            push.resolve()
            client.headers.update({"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"})
            assert answer(push.announce_wheel())["data"]["upload_url"].startswith(hub.url)
        assert "203.0.113.9" not in hub.log
    finally:
        hub.end()


@pytest.mark.parametrize(
    "text", ["hub.example", "ftp://hub.example", "https://", "https://hub.example/path", "https://a@b", "https://x:y"]
)
def test_a_public_url_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(NotServing, match="cannot be the public URL"):
        read_public_url(text)
