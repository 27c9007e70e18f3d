"""A sandbox node in a process of its own, and a client of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hub_server.sandbox_node.serve import CONFIGURATION
from hub_server.sandboxes.tokens import make_token


@dataclass
class RunningNode:
    """A node that answers at `url`."""

    process: subprocess.Popen[bytes]
    url: str
    secret: str
    data_dir: Path
    log_path: Path
    level: str
    backend: str

    def control(self) -> httpx.Client:
        """Return a client of the control API."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx.Client(base_url=f"{self.url}/control", headers=headers, timeout=60, trust_env=False, verify=False)

    def gateway(self, sandbox_id: str) -> httpx.Client:
        """Return a client of one sandbox."""
        headers = {"Authorization": f"Bearer {make_token(bytes.fromhex(self.secret), sandbox_id).text}"}
        return httpx.Client(
            base_url=f"{self.url}/sandboxes/{sandbox_id}", headers=headers, timeout=60, trust_env=False, verify=False
        )

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self.log_path.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


def launch_node(data_dir: Path, **options: Any) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the process of a node; return it and its log."""
    log_path = data_dir.parent / f"{data_dir.name}.log"
    configuration = {"data_dir": str(data_dir), **options}
    environment = {**os.environ, CONFIGURATION: json.dumps(configuration)}
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hub_server.sandbox_node.serve"], stdout=subprocess.DEVNULL, stderr=log,
            stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
    return process, log_path


def start_node(data_dir: Path, **options: Any) -> RunningNode:
    """Start a node on a free port and wait until it answers."""
    ready = data_dir.parent / f"{data_dir.name}.ready.json"
    ready.unlink(missing_ok=True)
    secret = secrets.token_hex(32)
    process, log_path = launch_node(data_dir, **{"secret": secret, "ready_file": str(ready), **options})
    deadline = time.monotonic() + 60
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"the node did not start: {log_path.read_text()}")
        time.sleep(0.02)
    facts = json.loads(ready.read_text())
    return RunningNode(process, facts["url"], secret, data_dir, log_path, facts["level"], facts["backend"])
