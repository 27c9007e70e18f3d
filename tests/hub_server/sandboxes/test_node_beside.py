"""The node that a hub starts beside itself: there when it can be, gone with the hub, and back after it died."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_sandbox_node import create
from tests.running_hub import RunningHub, answer, start_hub


def until(found: Callable[[], Any], timeout_s: float = 60) -> Any:
    """Return what is found, once it is."""
    deadline = time.monotonic() + timeout_s
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)
    return value


def family(pid: int) -> set[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] != "Z":
            parents[int(stat.parent.name)] = int(words[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    """Return those processes that run."""
    return {pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and pid in family(pid) and _runs(pid)}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def nodes_of(hub: RunningHub) -> list[dict[str, Any]]:
    with hub.client(hub.admin_key) as admin:
        return [node for node in answer(admin.get("/sandbox-nodes"))["nodes"] if node["left_at"] is None]


def say_hello(sandbox: dict[str, Any]) -> httpx.Response:
    """Run a command by the older of the two ways."""
    auth = sandbox["gatewayAuth"]
    base = f"{auth['gateway_url']}/{auth['user_ns']}/{auth['job_id']}"
    headers = {"Authorization": f"Bearer {auth['token']}"}
    body = {"command": "echo hello", "timeout": 20}
    return httpx.post(f"{base}/exec", json=body, headers=headers, trust_env=False, timeout=30)


@pytest.fixture
def hub_with_sandboxes(tmp_path: Path) -> Any:
    """A hub with a node beside it, of whatever level this machine gives."""
    hub = start_hub(tmp_path / "data", "--sandboxes", "--sandboxes-min-level", "none")
    yield hub
    if hub.process.poll() is None:
        hub.end()


def test_a_hub_has_sandboxes_beside_it_that_end_with_it(hub_with_sandboxes: RunningHub) -> None:
    hub = hub_with_sandboxes
    [node] = until(lambda: nodes_of(hub))
    assert node["name"].endswith(", beside the hub")
    with hub.client(hub.key_of("somebody")) as client:
        made = create(client)
        assert made["status"] == "RUNNING"
        assert made["enforcement"]["level"] == node["level"]
        assert answer(say_hello(made)) | {"stdout": "hello\n", "exit_code": 0} == answer(say_hello(made))
        everyone = family(hub.process.pid)
        assert len(everyone) > 2
        assert answer(client.delete(f"/sandbox/{made['id']}"))["success"] is True
        assert say_hello(made).status_code == 502
    assert hub.end() == 0
    assert until(lambda: not alive(everyone), 20)


def test_a_hub_that_is_killed_takes_its_node_and_the_sandboxes_along(hub_with_sandboxes: RunningHub) -> None:
    hub = hub_with_sandboxes
    until(lambda: nodes_of(hub))
    with hub.client(hub.key_of("somebody")) as client:
        assert create(client)["status"] == "RUNNING"
    everyone = family(hub.process.pid)
    hub.process.kill()
    hub.process.wait()
    assert until(lambda: not alive(everyone), 20)


def test_a_node_that_dies_is_replaced_and_its_sandboxes_are_known_to_be_gone(hub_with_sandboxes: RunningHub) -> None:
    hub = hub_with_sandboxes
    [before] = until(lambda: nodes_of(hub))
    with hub.client(hub.key_of("somebody")) as client:
        made = create(client)
        pid = next(
            pid
            for pid in family(hub.process.pid)
            if b"hub_server.sandbox_node.serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == hub.process.pid
        )
        os.kill(pid, signal.SIGKILL)
        [after] = until(lambda: [node for node in nodes_of(hub) if node["url"] != before["url"]])
        assert after["node_id"] == before["node_id"]
        context = answer(client.get(f"/sandbox/{made['id']}/error-context"))
        assert context["status"] == "ERROR"
        assert context["errorMessage"] == "its node does not know it any more: the node was started anew"
        assert say_hello(create(client)).json()["stdout"] == "hello\n"
    assert "the sandbox node died; it is started again" in hub.log


def test_a_machine_that_cannot_give_the_level_is_said_once_and_the_hub_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs := tmp_path / "bin").mkdir()
    (programs / "rm").symlink_to(str(shutil.which("rm")))
    monkeypatch.setenv("PATH", str(programs))  # without runsc, wherever that is
    hub = start_hub(tmp_path / "data", "--sandboxes", "--sandboxes-min-level", "gvisor")
    try:
        until(lambda: "there are no sandboxes on this machine" in hub.log)
        with hub.client(hub.key_of("somebody")) as client:
            assert client.post("/sandbox", json={"name": "x", "docker_image": "host"}).status_code == 503
        assert hub.log.count("there are no sandboxes on this machine") == 1
    finally:
        hub.end()
