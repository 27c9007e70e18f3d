"""Blobs in an S3-compatible store, under the names that they have in a folder.

An object appears with all its bytes in one moment, or not at all. Nothing can be renamed there, so a blob is written to
a local file first, which is also what is looked at before it is kept.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hub_server.blobs import BlobWriter, StoredBlob, remove_if_old
from hub_server.errors import NotServing, Unavailable

_CHUNK_BYTES = 1024**2
# Below this an object is one request; above it, parts that are sent at the same time.
_TRANSFER = TransferConfig(multipart_threshold=64 * 1024**2, multipart_chunksize=32 * 1024**2, max_concurrency=4)
_CONNECTIONS = 50
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 10, 60
_ABSENT = ("404", "NoSuchKey", "NotFound", "NoSuchUpload")
_KEYS = "keys stand in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_PAST_THE_END = ("416", "InvalidRange")


class S3Blobs:
    """Blobs as objects `PREFIX/sha256/ab/abcd...`. `expect` is told of each one before its bytes are sent."""

    def __init__(self, url: str, incoming: Path, expect: Callable[[str], None]) -> None:
        """Connect to `s3://BUCKET/PREFIX`, with `endpoint_url` and `region` in the query where they are needed.

        Raises:
            NotServing: the URL is not such a one, or the bucket cannot be read.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if not parts.hostname or parts.username or options.keys() - {"endpoint_url", "region"}:
            raise NotServing(
                f"{_without_secrets(url)!r} does not name a bucket",
                hint=f"give s3://BUCKET/PREFIX?endpoint_url=http://HOST:9000&region=NAME; {_KEYS}",
            )
        self._bucket, prefix = parts.netloc, parts.path.strip("/")
        self._prefix = f"{prefix}/sha256/" if prefix else "sha256/"
        incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming, self._expect = incoming, expect
        endpoint_url = options.get("endpoint_url")
        config = Config(
            max_pool_connections=_CONNECTIONS,
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"mode": "standard", "max_attempts": 4},
            # Stores of one's own rarely have a host name for each bucket.
            s3={"addressing_style": "path" if endpoint_url else "auto"},
        )
        try:
            session = boto3.session.Session(region_name=options.get("region"))
            self._client: Any = session.client("s3", endpoint_url=endpoint_url, config=config)
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        except (BotoCoreError, ClientError, ValueError) as error:
            raise NotServing(
                f"cannot use the blobs in {_without_secrets(url)}: {error}",
                hint=f"the bucket has to be there; {_KEYS}",
            ) from None

    def writer(self) -> BlobWriter:
        """Return a writer for a new blob; use it in a `with` block."""
        return BlobWriter(self, f"{self._incoming}/{secrets.token_hex(16)}")

    def prepare(self, writer: BlobWriter) -> None:
        """Begin nothing: what goes to a store needs no place on this disk."""

    def keep(self, *writers: BlobWriter) -> None:
        """Upload blobs; the object of one that is there already is put anew, which changes nothing but its age."""
        for writer in writers:
            self._expect(writer.sha256)
            with _asking():
                self._client.upload_file(
                    str(writer.written()), self._bucket, self._key(writer.sha256), Config=_TRANSFER
                )

    def put(self, data: bytes) -> str:
        """Store `data` and return its sha256."""
        with self.writer() as writer:
            writer.write(data)
            writer.keep()
            return writer.sha256

    def read(self, sha256: str, offset: int, length: int) -> bytes:
        """Return a part of a blob, as much of it as there is."""
        return b"".join(self.stream(sha256, offset, length))

    def stream(self, sha256: str, offset: int, length: int) -> Iterator[bytes]:
        """Yield a part of a blob piece by piece."""
        if length <= 0:
            return
        with _asking():
            try:
                found = self._client.get_object(
                    Bucket=self._bucket, Key=self._key(sha256), Range=f"bytes={offset}-{offset + length - 1}"
                )
            except ClientError as error:
                if _code(error) in _PAST_THE_END:
                    return
                raise
            with contextlib.closing(found["Body"]) as body:
                yield from body.iter_chunks(_CHUNK_BYTES)

    def size(self, sha256: str) -> int:
        """Return the size of a blob in bytes."""
        return self._about(sha256).size

    def local_path(self, _sha256: str) -> None:
        """Return None: no blob lies on this machine."""
        return

    @contextmanager
    def local(self, sha256: str) -> Iterator[Path]:
        """Give a copy of a blob, which is gone after the block."""
        path = self._incoming / secrets.token_hex(16)
        try:
            with _asking():
                self._client.download_file(self._bucket, self._key(sha256), str(path), Config=_TRANSFER)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def probe(self) -> None:
        """Raise whatever keeps bytes from being stored; leaves nothing."""
        with self.writer() as writer, _asking():
            writer.write(b"probe")
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)

    def total(self) -> tuple[int, int]:
        """Return how many blobs there are, and their bytes."""
        sizes = [blob.size for blob in self.all()]
        return len(sizes), sum(sizes)

    def clear_incoming(self) -> None:
        """Remove what an earlier server of this data folder left half-written."""
        for path in self._incoming.iterdir():
            path.unlink()

    def recover(self) -> None:
        """Do nothing: a collection does nothing by halves here."""

    def remove_unfinished(self, grace: timedelta) -> int:
        """Remove local files of uploads, and uploads in parts that were begun, before the time of `grace`."""
        removed = sum(remove_if_old(path, grace) is not None for path in list(self._incoming.iterdir()))
        with _asking():
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for upload in page.get("Uploads", []):
                    if datetime.now(UTC) - upload["Initiated"] >= grace:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        removed += 1
        return removed

    def all(self) -> Iterator[StoredBlob]:
        """Yield every blob."""
        with _asking():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for found in page.get("Contents", []):
                    name = found["Key"].rpartition("/")[2]
                    yield StoredBlob(name, found["Size"], found["LastModified"].timestamp())

    def take_away(self, sha256: str, grace: timedelta) -> int | None:
        """Remove a blob and return its size; None when it is gone already or was stored within `grace`."""
        with contextlib.suppress(FileNotFoundError):
            blob = self._about(sha256)
            if blob.is_older_than(grace):
                with _asking():
                    self._client.delete_object(Bucket=self._bucket, Key=self._key(sha256))
                return blob.size
        return None

    def _about(self, sha256: str) -> StoredBlob:
        with _asking():
            found = self._client.head_object(Bucket=self._bucket, Key=self._key(sha256))
        return StoredBlob(sha256, found["ContentLength"], found["LastModified"].timestamp())

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}{sha256[:2]}/{sha256}"


@contextmanager
def _asking() -> Iterator[None]:
    """Say in the hub's own errors what went wrong with the store.

    Raises:
        FileNotFoundError: there is no such object.
        Unavailable: the store does not answer, or does not let the hub do this.
    """
    try:
        yield
    except ClientError as error:
        if _code(error) in _ABSENT:
            raise FileNotFoundError("no such blob") from None
        raise Unavailable("the store of this hub's files refuses to work; try again later") from error
    except (BotoCoreError, Boto3Error) as error:
        raise Unavailable("the store of this hub's files does not answer; try again later") from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
