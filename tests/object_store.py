"""An S3-compatible store of the tests' own: moto's server in a process, spoken to over HTTP."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import httpx

from prime_cli.core.processes import child_environment, die_with_parent

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Bucket:
    """A bucket on the store, and the URL by which a hub is pointed at it."""

    name: str
    client: Any
    url: str

    def objects(self) -> dict[str, bytes]:
        """Return what lies in it by key."""
        found = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return {item["Key"]: self.client.get_object(Bucket=self.name, Key=item["Key"])["Body"].read() for item in found}


@dataclass
class ObjectStore:
    """A store that answers at `url`."""

    url: str
    process: subprocess.Popen[bytes]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def fresh_bucket(self) -> Bucket:
        """Make an empty bucket."""
        name = f"hub-{next(self._numbers)}"
        client = boto3.client("s3", endpoint_url=self.url)
        client.create_bucket(Bucket=name)
        return Bucket(name, client, f"s3://{name}/blobs?endpoint_url={self.url}")


@contextlib.contextmanager
def running_store() -> Iterator[ObjectStore]:
    """Start a store on a free port, with its credentials in the environment of this process and its children."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=child_environment(), preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield ObjectStore(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/moto-api/", trust_env=False)
            return
        assert process.poll() is None, "the store ended at its start"
        assert time.monotonic() < deadline, "the store did not start"
        time.sleep(0.05)
