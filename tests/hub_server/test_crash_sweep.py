"""The hub is killed at many points of an upload: afterwards the version is wholly there, or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from hub_server.garbage import collect_garbage
from tests.running_hub import Push, make_wheel, sha256

SCRIPT = Path(__file__).parent.parent / "crashing_hub.py"
NEVER = -1


@dataclass
class Hubs:
    """Starts one hub after another on one data folder."""

    launcher: subprocess.Popen[str]
    data_dir: Path
    number: int = 0
    url: str = ""
    key: str = ""
    pid: int = 0

    def start(self) -> None:
        """Start a hub and wait until it answers."""
        assert self.launcher.stdin is not None
        assert self.launcher.stdout is not None
        self.number += 1
        ready = self._ready
        self.launcher.stdin.write(f"{self.data_dir} {ready}\n")
        self.launcher.stdin.flush()
        self.pid = int(self.launcher.stdout.readline())
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < deadline, "the hub did not start"
            time.sleep(0.01)
        self.url = httpx.Response(200, content=ready.read_bytes()).json()["url"]
        self.key = (self.data_dir / "admin.key").read_text().strip()

    def arm(self, point: int) -> None:
        """Let the hub die at the line `point` from now."""
        file = self._ready.with_suffix(".point")
        file.write_text(str(point))
        os.kill(self.pid, signal.SIGUSR1)
        while file.exists():
            time.sleep(0.002)

    @property
    def _ready(self) -> Path:
        return self.data_dir.parent / f"ready-{self.number}.json"

    def end(self) -> int | None:
        """End the hub; return its number of lines, None when it had been killed before."""
        assert self.launcher.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        status = int(self.launcher.stdout.readline())
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
        return int(self._ready.with_suffix(".count").read_text())

    def client(self) -> httpx.Client:
        """Return a client of the API."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30, trust_env=False)


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[Hubs]:
    """A launcher of hubs, on an empty data folder."""
    launcher = subprocess.Popen(
        [sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent)},
    )  # fmt: skip
    hubs = Hubs(launcher, tmp_path / "data")
    yield hubs
    with contextlib.suppress(ProcessLookupError):
        os.kill(hubs.pid, signal.SIGKILL)
    assert launcher.stdin is not None
    launcher.stdin.close()
    launcher.wait(timeout=20)


VERSION = "0.1.0"
WAYS = ("by-push", "by-form")


def upload(hubs: Hubs, number: int) -> bool:
    """Publish one new environment by a push and one by a form; False when the hub did not live to the end.

    Each number has environments of its own, so that every upload executes the same lines.
    """
    code = f"VALUE = {number}\n"
    filename, data = make_wheel(f"by-form-{number}", VERSION, code=code)
    try:
        with hubs.client() as client:
            pushed = Push(client, f"by-push-{number}", VERSION, code=code).run()
        assert pushed.is_success, pushed.text
        sent = httpx.post(
            f"{hubs.url}/index/{slug_of(hubs)}/legacy/", data={":action": "file_upload"},
            files={"content": (filename, data)}, auth=("__token__", hubs.key), timeout=30, trust_env=False,
        )  # fmt: skip
        assert sent.is_success, sent.text
    except httpx.TransportError:
        return False
    return True


def slug_of(hubs: Hubs) -> str:
    with hubs.client() as client:
        return str(client.get("/user/whoami").json()["data"]["slug"])


def check_all_or_nothing(hubs: Hubs, way: str, number: int) -> set[str]:
    """Check that a version is wholly there or not there at all, in every view; return the hashes of its files."""
    slug, name, files = slug_of(hubs), f"{way}-{number}", []
    with hubs.client() as client:
        details = client.get(f"/environmentshub/{slug}/{name}/@{VERSION}")
        page = client.get(f"{hubs.url}/index/{slug}/simple/{name}/", headers={"Accept": "application/*"})
        if page.is_success:
            files = page.json()["files"]
        assert details.is_success == bool(files)
        if not details.is_success:
            assert details.status_code == 404
            return set()
        (file,) = files
        wheel = client.get(page.url.join(file["url"])).content
        assert wheel == make_wheel(name, VERSION, code=f"VALUE = {number}\n")[1]
        assert sha256(wheel) == file["hashes"]["sha256"]
        metadata = client.get(page.url.join(file["url"] + ".metadata"))
        assert sha256(metadata.content) == file["core-metadata"]["sha256"]
        hashes = {sha256(wheel), sha256(metadata.content)}
        if way == "by-push":
            source = client.get(details.json()["data"]["package_url"])
            assert sha256(source.content) == details.json()["data"]["package_sha256"]
            hashes.add(sha256(source.content))
    return hashes


def sweep(hubs: Hubs, points: int) -> None:
    """Kill a hub at `points` points spread over an upload; check and retry each time."""
    hubs.start()
    assert upload(hubs, points)  # what is executed only once in the life of a hub is behind us
    hubs.arm(NEVER)
    assert upload(hubs, points + 1)
    lines = hubs.end()
    assert lines is not None
    assert lines > points, "there are fewer lines than points"
    found = []
    hubs.start()
    for number in range(points):
        hubs.arm(1 + number * lines // points)
        survived = upload(hubs, number)
        killed = hubs.end() is None
        assert killed or survived
        if number % 2:  # a retry has to succeed on what the crash left behind, and without it
            collect_garbage(hubs.data_dir, None, timedelta(0))
        hubs.start()
        found += [bool(check_all_or_nothing(hubs, way, number)) for way in WAYS]
        assert upload(hubs, number), "the retry of a cut-off upload succeeds"
    assert {True, False} <= set(found), "the points lie on both sides of the moment of publishing"
    expected = {
        name for number in range(points + 2) for way in WAYS for name in check_all_or_nothing(hubs, way, number)
    }
    assert len(expected) >= 4 * (points + 2)
    hubs.end()
    collect_garbage(hubs.data_dir, None, timedelta(0))
    assert {path.name for path in (hubs.data_dir / "blobs" / "sha256").glob("*/*")} == expected
    assert not list((hubs.data_dir / "blobs" / "incoming").iterdir())


def test_a_hub_killed_anywhere_in_an_upload_has_the_version_wholly_or_not_at_all(hubs: Hubs) -> None:
    sweep(hubs, points=8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hub_killed_at_two_hundred_points_of_an_upload_has_the_version_wholly_or_not_at_all(hubs: Hubs) -> None:
    sweep(hubs, points=200)
