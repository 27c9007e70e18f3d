"""Starting and stopping a hub."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.running_hub import PRIME, Push, RunningHub, answer, start_hub


def prime(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PRIME, *arguments], capture_output=True, text=True, env=dict(os.environ), check=False)


def test_the_first_start_makes_an_administrator_and_a_restart_keeps_everything(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    key_file = hub.data_dir / "admin.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(hub.data_dir.stat().st_mode) == 0o700
    with hub.client(hub.admin_key) as client:
        me = answer(client.get("/user/whoami"))["data"]
        assert me["is_admin"] is True
        assert Push(client, "kept", "0.1.0").run().is_success
    assert hub.end() == 0
    again = start_hub(hub.data_dir)
    try:
        assert again.admin_key == hub.admin_key
        with again.client(hub.admin_key) as client:
            assert answer(client.get("/user/whoami"))["data"] == me
            assert answer(client.get(f"/environmentshub/{me['slug']}/kept/@latest"))["data"]["wheel_url"]
    finally:
        again.end()


def test_ctrl_c_ends_with_130_and_status_tells_whether_it_runs(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    running = prime("--output", "json", "hub", "status", "--data-dir", str(hub.data_dir))
    assert running.returncode == 0
    assert json.loads(running.stdout)["url"] == hub.url
    assert hub.end(signal.SIGINT) == 130
    assert "Traceback" not in hub.log
    stopped = prime("--output", "json", "hub", "status", "--data-dir", str(hub.data_dir))
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["running"] is False


def test_a_port_in_use_is_one_line_and_leaves_no_trace(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = prime("--plain", "hub", "serve", "--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"error: port {port} of 127.0.0.1 is in use",
        "hint: use `--port 0` for a free one, or another number",
    ]
    assert not (tmp_path / "data").exists()


def test_a_data_folder_has_one_server(hub: RunningHub) -> None:
    refused = prime("hub", "serve", "--port", "0", "--data-dir", str(hub.data_dir))
    assert refused.returncode == 1
    assert "another hub is running" in refused.stderr
    with hub.client() as client:
        assert client.get("/environmentshub/").is_success


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "no.such.host.invalid"], "is not an address"),
        (["--database-url", "nonsense"], "database URL"),
        (["--data-dir", "/dev/null/x"], "cannot use the data folder"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    refused = prime("hub", "serve", "--port", "0", "--data-dir", str(tmp_path / "data"), *arguments)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hub.db").write_text("this is a text file, and a long enough one to be looked at")
    refused = prime("hub", "serve", "--port", "0", "--data-dir", str(tmp_path))
    assert refused.returncode == 1
    assert "cannot use the database" in refused.stderr
    assert "Traceback" not in refused.stderr
