"""What both stores of blobs promise: a folder, and a bucket of an S3-compatible store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hub_server.blobs import BlobStore, FolderBlobs
from hub_server.database import Database, open_database
from hub_server.errors import NotServing
from hub_server.expected_blobs import expect
from hub_server.garbage import collect
from hub_server.open_blobs import open_blobs
from tests.object_store import Bucket
from tests.running_hub import sha256

DATA = b"the bytes of a wheel"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database with all tables."""
    database = open_database(f"sqlite:///{tmp_path}/hub.db")
    yield database
    database.close()


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """An empty bucket."""
    made: Bucket = request.getfixturevalue("object_store").fresh_bucket()
    return made


@pytest.fixture(params=["folder", "s3"])
def blobs(tmp_path: Path, database: Database, request: pytest.FixtureRequest) -> BlobStore:
    """An empty store."""
    url = request.getfixturevalue("bucket").url if request.param == "s3" else None
    return store_at(tmp_path, database, url)


def store_at(tmp_path: Path, database: Database, url: str | None) -> BlobStore:
    return open_blobs(url, tmp_path / "blobs", database)


def test_a_blob_is_read_whole_in_part_and_as_a_file(blobs: BlobStore) -> None:
    name = blobs.put(DATA)
    assert name == sha256(DATA)
    assert blobs.size(name) == len(DATA)
    assert blobs.read(name, 4, 5) == DATA[4:9]
    assert blobs.read(name, 15, 100) == DATA[15:]
    assert blobs.read(name, 100, 5) == b""
    assert b"".join(blobs.stream(name, 1, 10**9)) == DATA[1:]
    with blobs.local(name) as path:
        assert path.read_bytes() == DATA
    assert [(blob.sha256, blob.size) for blob in blobs.all()] == [(name, len(DATA))]
    assert blobs.total() == (1, len(DATA))


def test_what_is_not_there_is_a_file_not_found(blobs: BlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        blobs.read("0" * 64, 0, 1)
    with pytest.raises(FileNotFoundError):
        blobs.size("0" * 64)
    with pytest.raises(FileNotFoundError), blobs.local("0" * 64) as path:
        path.read_bytes()
    assert blobs.take_away("0" * 64, timedelta(0)) is None


def test_a_blob_has_its_name_only_once_it_is_kept(blobs: BlobStore, tmp_path: Path) -> None:
    with blobs.writer() as first, blobs.writer() as second, blobs.writer() as dropped:
        for writer in (first, second, dropped):
            writer.write(DATA + str(id(writer)).encode())
        assert first.written().read_bytes().startswith(DATA)
        assert list(blobs.all()) == []
        blobs.keep(first, second)
    assert {blob.sha256 for blob in blobs.all()} == {first.sha256, second.sha256}
    assert not list((tmp_path / "blobs" / "incoming").iterdir())
    blobs.probe()
    assert not list((tmp_path / "blobs" / "incoming").iterdir())


def test_the_same_bytes_again_are_one_blob(blobs: BlobStore) -> None:
    assert blobs.put(DATA) == blobs.put(DATA)
    assert blobs.total() == (1, len(DATA))


def test_a_young_blob_is_not_taken_away(blobs: BlobStore) -> None:
    name = blobs.put(DATA)
    assert blobs.take_away(name, timedelta(hours=1)) is None
    assert blobs.read(name, 0, 100) == DATA
    assert blobs.take_away(name, timedelta(0)) == len(DATA)
    assert list(blobs.all()) == []


def test_what_an_earlier_server_left_half_written_goes_at_its_next_start(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "blobs" / "incoming" / "cut-off").write_bytes(b"half")
    assert blobs.remove_unfinished(timedelta(hours=1)) == 0
    blobs.clear_incoming()
    assert blobs.remove_unfinished(timedelta(0)) == 0


def test_a_blob_that_somebody_is_about_to_store_again_is_not_collected(blobs: BlobStore, database: Database) -> None:
    orphan, coming = blobs.put(b"orphan"), blobs.put(DATA)
    time.sleep(2.1)
    expect(database, coming)
    collected = collect(database, blobs, grace=timedelta(seconds=1))
    assert (collected.blobs, collected.blobs_kept) == (1, 1)
    assert {blob.sha256 for blob in blobs.all()} == {coming} != {orphan}
    assert collect(database, blobs, grace=timedelta(0)).blobs == 1


def test_a_store_is_told_of_a_blob_before_its_bytes_are_sent(
    tmp_path: Path, database: Database, bucket: Bucket
) -> None:
    from hub_server.s3_blobs import S3Blobs

    seen: list[tuple[str, int]] = []
    store = S3Blobs(bucket.url, tmp_path / "incoming", lambda name: seen.append((name, len(bucket.objects()))))
    store.put(DATA)
    assert seen == [(sha256(DATA), 0)]
    assert list(bucket.objects()) == [f"blobs/sha256/{sha256(DATA)[:2]}/{sha256(DATA)}"]


def test_an_upload_in_parts_that_was_cut_off_is_removed(tmp_path: Path, database: Database, bucket: Bucket) -> None:
    store = store_at(tmp_path, database, bucket.url)
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key="blobs/sha256/ab/abc")
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key="somebody/elses")
    # This store says of every such upload that it was begun in 2010.
    assert store.remove_unfinished(timedelta(days=36500)) == 0
    assert store.remove_unfinished(timedelta(0)) == 1
    assert len(bucket.client.list_multipart_uploads(Bucket=bucket.name)["Uploads"]) == 1


def test_a_folder_of_blobs_can_be_copied_into_a_bucket_as_it_is(
    tmp_path: Path, database: Database, bucket: Bucket
) -> None:
    folder = tmp_path / "blobs"
    name = FolderBlobs(folder).put(DATA)
    for path in folder.glob("sha256/*/*"):
        bucket.client.upload_file(str(path), bucket.name, f"blobs/{path.relative_to(folder)}")
    assert store_at(tmp_path, database, bucket.url).read(name, 0, 100) == DATA


def test_no_server_empties_a_folder_that_it_shares(tmp_path: Path, database: Database) -> None:
    one, two = (store_at(tmp_path, database, str(tmp_path / "shared")) for _ in range(2))
    with one.writer() as writer:
        writer.write(DATA)
        two.clear_incoming()
        writer.keep()
    assert two.read(sha256(DATA), 0, 100) == DATA


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://somewhere/blobs", "blobs cannot lie in"),
        ("s3://", "does not name a bucket"),
        ("s3://key:secret@bucket", "does not name a bucket"),
        ("s3://bucket?regoin=x", "does not name a bucket"),
        ("s3://bucket?endpoint_url=http://127.0.0.1:1", "cannot use the blobs"),
        ("/dev/null/blobs", "cannot use the folder"),
    ],
)
def test_a_store_that_cannot_be_is_one_line_without_its_keys(
    tmp_path: Path, database: Database, url: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(NotServing, match=words) as refused:
        store_at(tmp_path, database, url)
    assert "secret" not in str(refused.value)
