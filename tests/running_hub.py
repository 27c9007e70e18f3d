"""A hub in a process of its own, started as an operator would, and wheels made by hand to push to it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PRIME = [sys.executable, "-m", "prime_cli.main"]


@dataclass
class RunningHub:
    """A hub that answers at `url`."""

    process: subprocess.Popen[bytes]
    url: str
    data_dir: Path
    admin_key: str
    users: dict[str, str] = field(default_factory=dict)

    def client(self, key: str | None = None) -> httpx.Client:
        """Return a client of the API with this key, or as nobody."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30, trust_env=False)

    def key_of(self, slug: str) -> str:
        """Return the API key of the user `slug`, who is added first when new."""
        if slug not in self.users:
            with self.client(self.admin_key) as admin:
                self.users[slug] = answer(admin.post("/users", json={"slug": slug}))["data"]["api_key"]
        return self.users[slug]

    @property
    def log(self) -> str:
        """What it wrote to stderr since its data folder was new."""
        return (self.data_dir.parent / f"{self.data_dir.name}.log").read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


def start_hub(data_dir: Path, *options: str) -> RunningHub:
    """Start a hub on a free port and wait until it answers."""
    ready = data_dir.parent / f"{data_dir.name}.ready.json"
    ready.unlink(missing_ok=True)
    command = [*PRIME, "hub", "serve", "--port", "0", "--data-dir", str(data_dir), "--ready-file", str(ready)]
    command += () if "--checks" in options else ("--checks", "0")
    command += options if "--sandboxes" in options else ("--no-sandboxes", *options)
    log_path = data_dir.parent / f"{data_dir.name}.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=dict(os.environ))
    deadline = time.monotonic() + 60
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"the hub did not start: {log_path.read_text()}")
        time.sleep(0.05)
    facts = json.loads(ready.read_text())
    key_file = Path(facts["admin_key_path"])
    # The first of several servers on one database has the administrator's key.
    return RunningHub(process, facts["url"], data_dir, key_file.read_text().strip() if key_file.exists() else "")


def answer(response: httpx.Response) -> dict[str, Any]:
    """Return the object of a response that must have succeeded."""
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.text}"
    data = response.json()
    assert isinstance(data, dict)
    return data


def make_wheel(
    name: str,
    version: str,
    *,
    code: str = "VALUE = 1\n",
    metadata: str | None = None,
    extra: dict[str, str] | None = None,
    without: str = "",
    has_module: bool = True,
) -> tuple[str, bytes]:
    """Return the file name and the bytes of a wheel with one module; `without` leaves a member out that RECORD has."""
    module = name.replace("-", "_")
    folder = f"{module}-{version}.dist-info"
    about = metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.8\n"
    tags = "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = {f"{folder}/METADATA": about, f"{folder}/WHEEL": tags, **(extra or {})}
    members = {f"{module}.py": code, **members} if has_module else members
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    for member, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        writer.writerow([member, f"sha256={digest}", len(text.encode())])
    writer.writerow([f"{folder}/RECORD", "", ""])
    members[f"{folder}/RECORD"] = record.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in members.items():
            if not without or not member.endswith(without):
                archive.writestr(zipfile.ZipInfo(member, (2020, 2, 2, 0, 0, 0)), text)
    return f"{module}-{version}-py3-none-any.whl", buffer.getvalue()


def make_source(files: dict[str, str]) -> bytes:
    """Return a tar.gz of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def sha256(data: bytes) -> str:
    """Return the hash of some bytes."""
    return hashlib.sha256(data).hexdigest()


@dataclass
class Push:
    """One push of a version, step by step as the published clients do it."""

    client: httpx.Client
    name: str
    version: str
    code: str = "VALUE = 1\n"
    visibility: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    environment_id: str = ""
    owner: str | None = None

    def __post_init__(self) -> None:
        self.filename, self.wheel = make_wheel(self.name, self.version, code=self.code)
        self.source = make_source({"pyproject.toml": f'version = "{self.version}"', f"{self.name}.py": self.code})
        self.content_hash = sha256(f"{self.version} {self.code}".encode())

    def resolve(self) -> dict[str, Any]:
        """Get or make the environment."""
        body = {"name": self.name, "visibility": self.visibility, "owner_slug": self.owner}
        data: dict[str, Any] = answer(self.client.post("/environmentshub/resolve", json=body))["data"]
        self.environment_id = data["id"]
        return data

    def announce_wheel(self, **changes: Any) -> httpx.Response:
        """Announce the wheel."""
        body = {
            "content_hash": self.content_hash,
            "filename": self.filename,
            "sha256": sha256(self.wheel),
            "size": len(self.wheel),
            "semantic_version": self.version,
            "metadata": {"description": f"about {self.name}", "tags": ["toy"], **self.metadata},
            **changes,
        }
        return self.client.post(f"/environmentshub/{self.environment_id}/wheels", json=body)

    def announce_source(self, **changes: Any) -> httpx.Response:
        """Announce the source archive."""
        body = {
            "content_hash": self.content_hash,
            "filename": f"{self.name}-{self.version}-{self.content_hash[:8]}.tar.gz",
            "sha256": sha256(self.source),
            "semantic_version": self.version,
            "metadata": {"description": f"about {self.name}", "tags": ["toy"], **self.metadata},
            **changes,
        }
        return self.client.post(f"/environmentshub/{self.environment_id}/versions", json=body)

    def finalize(self, kind: str, identifier: str) -> httpx.Response:
        """Finalize a wheel or a version, without a body but with a JSON content type, as the clients do."""
        return self.client.post(
            f"/environmentshub/{self.environment_id}/{kind}/{identifier}/finalize",
            headers={"Content-Type": "application/json"},
        )

    def send_wheel(self) -> httpx.Response:
        """Announce, upload and finalize the wheel; returns the first refusal, else the last answer."""
        announced = self.announce_wheel()
        if not announced.is_success:
            return announced
        data = announced.json()["data"]
        if data["upload_url"] is None:
            return announced
        stored = put(data["upload_url"], self.wheel)
        return self.finalize("wheels", data["wheel_id"]) if stored.is_success else stored

    def send_source(self) -> httpx.Response:
        """Announce, upload and finalize the source archive; returns the first refusal, else the last answer."""
        announced = self.announce_source()
        if not announced.is_success:
            return announced
        data = announced.json()["data"]
        stored = put(data["upload_url"], self.source)
        return self.finalize("versions", data["version_id"]) if stored.is_success else stored

    def run(self) -> httpx.Response:
        """Push everything; returns the first refusal, else the last answer."""
        self.resolve()
        sent = self.send_wheel()
        return self.send_source() if sent.is_success else sent


def put(url: str, data: bytes) -> httpx.Response:
    """Upload as the published clients do: raw bytes, no Authorization."""
    return httpx.put(url, content=data, headers={"Content-Type": "application/octet-stream"}, trust_env=False)
