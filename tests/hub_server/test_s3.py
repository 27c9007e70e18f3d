"""A hub whose blobs lie in an S3-compatible store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.object_store import Bucket, ObjectStore, running_store
from tests.running_hub import PRIME, Push, RunningHub, answer, make_wheel, put, sha256, start_hub


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStore) -> Bucket:
    """The bucket of the hub."""
    return object_store.fresh_bucket()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket) -> Iterator[RunningHub]:
    """A hub on a bucket."""
    running = start_hub(tmp_path_factory.mktemp("hub-on-s3") / "data", "--blobs", bucket.url)
    yield running
    running.end()


@pytest.fixture(scope="module")
def wheel_url(hub: RunningHub) -> str:
    """The URL of a wheel in the index."""
    with hub.client(hub.key_of("ranger")) as client:
        assert Push(client, "ranged", "0.1.0").run().is_success
        details = answer(client.get("/environmentshub/ranger/ranged/@latest"))["data"]
    return str(details["wheel_url"])


WHEEL = make_wheel("ranged", "0.1.0")[1]


def get(url: str, method: str = "GET", **headers: str) -> httpx.Response:
    return httpx.request(method, url, headers=headers, trust_env=False)


def test_published_bytes_lie_in_the_bucket_and_nowhere_else(hub: RunningHub, bucket: Bucket) -> None:
    with hub.client(hub.key_of("somebody")) as client:
        push = Push(client, "stored", "0.1.0")
        assert push.run().is_success
        details = answer(client.get("/environmentshub/somebody/stored/@latest"))["data"]
        assert client.get(details["wheel_url"]).content == push.wheel
        package = client.get(details["package_url"])
        assert package.content == push.source
        assert "stored-0.1.0" in package.headers["content-disposition"]
    stored = {key.rpartition("/")[2]: data for key, data in bucket.objects().items()}
    assert stored[sha256(push.wheel)] == push.wheel
    assert stored[sha256(push.source)] == push.source
    assert not [path for path in (hub.data_dir / "blobs").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-99", 0, 100), ("bytes=100-", 100, None), ("bytes=-10", -10, None), ("bytes=5-999999", 5, None)],
)
def test_a_wheel_comes_in_parts(wheel_url: str, asked: str, start: int, end: int | None) -> None:
    response = get(wheel_url, range=asked)
    assert response.status_code == 206
    assert response.content == WHEEL[start:end]
    first = start % len(WHEEL)
    last = (end or len(WHEEL)) - 1
    assert response.headers["content-range"] == f"bytes {first}-{last}/{len(WHEEL)}"


def test_a_part_past_the_end_cannot_be_had(wheel_url: str) -> None:
    response = get(wheel_url, range="bytes=99999999-")
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{len(WHEEL)}"
    assert get(wheel_url, range="bytes=-0").status_code == 416


@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "lines=1-2", "bytes=-", "bytes=x-"])
def test_what_is_no_single_range_of_bytes_is_answered_whole(wheel_url: str, asked: str) -> None:
    response = get(wheel_url, range=asked)
    assert (response.status_code, response.content) == (200, WHEEL)


def test_head_says_the_size_and_sends_nothing(wheel_url: str) -> None:
    response = get(wheel_url, "HEAD")
    assert response.headers["content-length"] == str(len(WHEEL))
    assert response.headers["accept-ranges"] == "bytes"
    assert response.content == b""


def test_a_wheel_that_the_client_has_is_not_sent_again(wheel_url: str) -> None:
    tag = get(wheel_url).headers["etag"]
    assert get(wheel_url, **{"if-none-match": tag}).status_code == 304
    assert get(wheel_url, range="bytes=0-9", **{"if-range": tag}).status_code == 206
    assert get(wheel_url, range="bytes=0-9", **{"if-range": '"another"'}).content == WHEEL


def test_a_private_wheel_stays_private(hub: RunningHub) -> None:
    with hub.client(hub.key_of("hider")) as client:
        push = Push(client, "hidden", "0.1.0", visibility="PRIVATE")
        assert push.run().is_success
    url = f"{hub.url}/index/hider/files/{sha256(push.wheel)}/{push.filename}"
    assert get(url).status_code == 404
    allowed = httpx.get(url, auth=("__token__", hub.key_of("hider")), trust_env=False)
    assert allowed.content == push.wheel
    assert not allowed.history


def test_gc_takes_what_nothing_names_from_the_bucket(tmp_path: Path, object_store: ObjectStore) -> None:
    bucket = object_store.fresh_bucket()
    hub = start_hub(tmp_path / "data", "--blobs", bucket.url)
    with hub.client(hub.admin_key) as client:
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
        kept, deleted = Push(client, "kept", "0.1.0"), Push(client, "kept", "0.2.0", code="VALUE = 2\n")
        assert kept.run().is_success
        assert deleted.run().is_success
        answer(client.delete(f"/environmentshub/{slug}/kept/@0.2.0"))
        draft = Push(client, "kept", "0.3.0", code="VALUE = 3\n")
        draft.resolve()
        assert put(answer(draft.announce_wheel())["data"]["upload_url"], draft.wheel).is_success
    hub.end()
    (hub.data_dir / "blobs" / "incoming" / "cut-off").write_bytes(b"half")
    command = [*PRIME, "--output", "json", "hub", "gc", "--data-dir", str(hub.data_dir), "--grace-hours", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PRIME_HUB_BLOBS": bucket.url}, check=True
    )
    assert json.loads(done.stdout) | {"bytes_freed": 0} == {
        "drafts": 1, "blobs": 4, "bytes_freed": 0, "unfinished_uploads": 1, "blobs_kept": 3,
        "sandboxes": 0,
    }  # fmt: skip
    left = {key.rpartition("/")[2] for key in bucket.objects()}
    assert {sha256(kept.wheel), sha256(kept.source)} < left
    assert len(left) == 3


def test_a_killed_hub_has_a_version_wholly_or_not_at_all_and_takes_the_push_again(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    bucket = object_store.fresh_bucket()
    hub = start_hub(tmp_path / "data", "--blobs", bucket.url)
    with hub.client(hub.admin_key) as client:
        push = Push(client, "killed", "0.1.0")
        push.resolve()
        assert push.send_wheel().is_success
    hub.end(signal.SIGKILL)
    hub = start_hub(tmp_path / "data", "--blobs", bucket.url)
    try:
        with hub.client(hub.admin_key) as client:
            slug = answer(client.get("/user/whoami"))["data"]["slug"]
            assert client.get(f"/environmentshub/{slug}/killed/@latest").status_code == 404
            push.client = client
            assert push.run().is_success
            details = answer(client.get(f"/environmentshub/{slug}/killed/@latest"))["data"]
            assert client.get(details["wheel_url"]).content == push.wheel
    finally:
        hub.end()


def test_without_its_store_a_hub_publishes_nothing_and_says_so(tmp_path: Path) -> None:
    with running_store() as store:
        bucket = store.fresh_bucket()
        hub = start_hub(tmp_path / "data", "--blobs", bucket.url)
        try:
            with hub.client(hub.admin_key) as client:
                slug = answer(client.get("/user/whoami"))["data"]["slug"]
                push = Push(client, "early", "0.1.0")
                assert push.run().is_success
                wheel_url = answer(client.get(f"/environmentshub/{slug}/early/@latest"))["data"]["wheel_url"]
                store.process.kill()
                store.process.wait()
                late = Push(client, "late", "0.1.0")
                refused = late.run()
                assert refused.status_code == 503
                assert "does not answer" in refused.json()["detail"]
                assert client.get(f"/environmentshub/{slug}/late/@latest").status_code == 404
                assert client.get(wheel_url).status_code == 503
                assert httpx.get(f"{hub.url}/readyz", trust_env=False).status_code == 503
            assert not list((hub.data_dir / "blobs" / "incoming").iterdir())
        finally:
            hub.end()


def test_a_hub_moves_from_one_bucket_to_another_by_its_backup(tmp_path: Path, object_store: ObjectStore) -> None:
    one, two = object_store.fresh_bucket(), object_store.fresh_bucket()
    hub = start_hub(tmp_path / "data", "--blobs", one.url)
    with hub.client(hub.admin_key) as client:
        push = Push(client, "moved", "0.1.0")
        assert push.run().is_success
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
    hub.end()
    for arguments in (
        ("backup", str(tmp_path / "backup.tar"), "--data-dir", str(hub.data_dir), "--blobs", one.url),
        ("restore", str(tmp_path / "backup.tar"), "--data-dir", str(tmp_path / "again"), "--blobs", two.url),
    ):
        done = subprocess.run([*PRIME, "hub", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert two.objects() == one.objects()
    again = start_hub(tmp_path / "again", "--blobs", two.url)
    try:
        with again.client(hub.admin_key) as client:
            details = answer(client.get(f"/environmentshub/{slug}/moved/@latest"))["data"]
            assert client.get(details["wheel_url"]).content == push.wheel
    finally:
        again.end()
