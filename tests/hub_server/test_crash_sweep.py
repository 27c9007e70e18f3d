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
from running_hub import Push, make_wheel, sha256

from hub_server.garbage import collect_garbage

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
    yield Hubs(launcher, tmp_path / "data")
    assert launcher.stdin is not None
    launcher.stdin.close()
    launcher.wait(timeout=20)


def upload(hubs: Hubs, version: str) -> bool:
    """Push one version of one environment, then one of another by form; False when the hub did not live to the end."""
    code = f"VALUE = {version!r}\n"
    filename, data = make_wheel("by-form", version, code=code)
    try:
        with hubs.client() as client:
            pushed = Push(client, "by-push", version, code=code).run()
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


def check_all_or_nothing(hubs: Hubs, name: str, version: str) -> bool:
    """Check that a version is wholly there or not there at all, in every view; return which."""
    slug, files = slug_of(hubs), {}
    with hubs.client() as client:
        details = client.get(f"/environmentshub/{slug}/{name}/@{version}")
        page = client.get(f"{hubs.url}/index/{slug}/simple/{name}/", headers={"Accept": "application/*"})
        if page.is_success:
            files = {file["filename"].split("-")[1]: file for file in page.json()["files"]}
        assert details.is_success == (version in files)
        if not details.is_success:
            assert details.status_code == 404
            return False
        wheel = client.get(page.url.join(files[version]["url"])).content
        expected = make_wheel(name, version, code=f"VALUE = {version!r}\n")[1]
        assert wheel == expected
        assert sha256(wheel) == files[version]["hashes"]["sha256"]
        metadata = client.get(page.url.join(files[version]["url"] + ".metadata"))
        assert sha256(metadata.content) == files[version]["core-metadata"]["sha256"]
        if name == "by-push":
            assert client.get(details.json()["data"]["package_url"]).is_success
    return True


def named_blobs(hubs: Hubs, versions: list[str]) -> set[str]:
    """Return the hashes of all files of these versions."""
    slug, names = slug_of(hubs), set()
    with hubs.client() as client:
        for name in ("by-push", "by-form"):
            page = client.get(f"{hubs.url}/index/{slug}/simple/{name}/", headers={"Accept": "application/*"}).json()
            assert sorted(page["versions"]) == sorted(versions)
            for file in page["files"]:
                names |= {file["hashes"]["sha256"], file["core-metadata"]["sha256"]}
        for row in client.get(f"/environmentshub/{slug}/by-push/versions").json()["data"]["versions"]:
            names |= {file["sha256"] for file in row["files"]}
    return names


def sweep(hubs: Hubs, points: int) -> None:
    """Kill a hub at `points` points spread over an upload; check, retry and go on with the next version each time."""
    hubs.start()
    assert upload(hubs, "0.0.0")  # makes both environments, so that all later uploads execute the same lines
    hubs.arm(NEVER)
    assert upload(hubs, "0.0.1")
    lines = hubs.end()
    assert lines is not None
    assert lines > points, "there are fewer lines than points"
    versions, found = ["0.0.0", "0.0.1"], []
    hubs.start()
    for number in range(points):
        version = f"0.1.{number}"
        hubs.arm(1 + number * lines // points)
        survived = upload(hubs, version)
        killed = hubs.end() is None
        assert killed or survived
        if number % 2:  # a retry has to succeed on what the crash left behind, and without it
            collect_garbage(hubs.data_dir, None, timedelta(0))
        hubs.start()
        found += [check_all_or_nothing(hubs, name, version) for name in ("by-push", "by-form")]
        assert upload(hubs, version), "the retry of a cut-off upload succeeds"
        versions.append(version)
    assert {True, False} <= set(found), "the points lie on both sides of the moment of publishing"
    expected = named_blobs(hubs, versions)
    hubs.end()
    collect_garbage(hubs.data_dir, None, timedelta(0))
    assert {path.name for path in (hubs.data_dir / "blobs" / "sha256").glob("*/*")} == expected
    assert not list((hubs.data_dir / "blobs" / "incoming").iterdir())


def test_a_hub_killed_anywhere_in_an_upload_has_the_version_wholly_or_not_at_all(hubs: Hubs) -> None:
    sweep(hubs, points=20)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hub_killed_at_two_hundred_points_of_an_upload_has_the_version_wholly_or_not_at_all(hubs: Hubs) -> None:
    sweep(hubs, points=200)
