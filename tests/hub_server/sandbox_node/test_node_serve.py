"""The process of a node: how it starts, refuses to, and what it leaves when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.hub_server.sandbox_node.host_traces import Process, are_gone, control_groups_of, descendants, mounts
from tests.running_node import RunningNode, launch_node, start_node


@contextlib.contextmanager
def running(data_dir: Path, **options: object) -> Iterator[RunningNode]:
    """A node for the time of the block."""
    node = start_node(data_dir, **options)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.end(signal.SIGKILL)


def contained(node: RunningNode) -> None:
    """Skip where this host gives less than the level container."""
    if node.backend != "bwrap" or node.level != "container":
        pytest.skip(f"needs bubblewrap with control groups; the node got {node.backend} of level {node.level}")


def create(node: RunningNode, sandbox_id: str, **asked: object) -> None:
    """Make a sandbox."""
    with node.control() as api:
        facts = api.post("/sandboxes", json={"sandbox_id": sandbox_id, "wait_s": 30, **asked}).json()
    assert facts["state"] == "running", facts


def run(node: RunningNode, sandbox_id: str, command: str) -> dict[str, object]:
    """Run a command."""
    with node.gateway(sandbox_id) as gateway:
        answer = gateway.post("/exec", json={"command": command, "timeout": 20})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_node_serves_the_hub_and_clients_from_one_url(tmp_path: Path) -> None:
    with running(tmp_path / "node", backend="process", min_level="none") as node:
        create(node, "one")
        assert run(node, "one", "echo hi")["stdout"] == "hi\n"
        with node.gateway("one") as stranger:
            stranger.headers["Authorization"] = f"Bearer {node.secret}"
            assert stranger.post("/exec", json={"command": "echo", "timeout": 5}).status_code == 401
        with node.gateway("other") as other:
            assert other.post("/exec", json={"command": "echo", "timeout": 5}).status_code in (404, 502)
        assert httpx.get(f"{node.url}/health", trust_env=False).json() == {"status": "ok"}
        assert httpx.get(f"{node.url}/", trust_env=False).status_code == 404
        assert node.end() == 0


def test_a_node_refuses_to_start_below_the_level_that_is_asked_for(tmp_path: Path) -> None:
    process, log = launch_node(tmp_path / "node", backend="process", min_level="restricted")
    assert process.wait(timeout=30) == 0
    said = log.read_text()
    assert "process gives level none only" in said
    assert "prime sandbox doctor" in said
    assert "Traceback" not in said


def test_the_default_level_is_container_and_plain_processes_do_not_do(tmp_path: Path) -> None:
    process, log = launch_node(tmp_path / "node", backend="process")
    assert process.wait(timeout=30) == 0
    assert "cannot give sandboxes of level container" in log.read_text()


def test_one_data_folder_has_one_node(tmp_path: Path) -> None:
    with running(tmp_path / "node", backend="process", min_level="none"):
        second, log = launch_node(tmp_path / "node", backend="process", min_level="none")
        second.wait(timeout=30)
        assert "another sandbox node is running" in log.read_text()


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process, log = launch_node(tmp_path / "node", backend="process", min_level="none", port=port)
        process.wait(timeout=30)
    assert f"port {port} of 127.0.0.1 is in use" in log.read_text()
    assert not (tmp_path / "node").exists()


def test_a_node_on_loopback_cannot_belong_to_a_hub_elsewhere(tmp_path: Path) -> None:
    hub = {"hub_url": "http://hub.example:8000", "key": "k"}
    process, log = launch_node(tmp_path / "node", backend="process", min_level="none", **hub)
    process.wait(timeout=30)
    assert "could not reach a node that listens on 127.0.0.1" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_that_ends_however_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    mounted = mounts(tmp_path)
    with running(tmp_path / "node", min_level="none") as node:
        contained(node)
        for name in ("a", "b"):
            create(node, name)
            run(node, name, "setsid sleep 1000 > /dev/null 2>&1 &")
        theirs = descendants(node.process.pid)
        assert len(theirs) >= 5
        groups = control_groups_of(theirs)
        assert len(groups) >= 6
        processes = [process for pid in theirs if (process := Process.of(pid)) is not None]
        status = node.end(number)
        assert status == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        assert are_gone(processes)
    assert mounts(tmp_path) == mounted
    if number == signal.SIGKILL:
        # What only a living process can remove goes when the next node starts.
        with running(tmp_path / "node", min_level="none") as again:
            again.end()
    assert not [folder for folder in groups if folder.exists()]


def test_requests_under_way_do_not_hold_up_the_end_of_a_node(tmp_path: Path) -> None:
    with running(tmp_path / "node", backend="process", min_level="none") as node:
        create(node, "one")
        answers: list[int] = []

        def wait() -> None:
            with contextlib.suppress(httpx.HTTPError), node.gateway("one") as gateway:
                answers.append(gateway.post("/exec", json={"command": "sleep 60", "timeout": 60}).status_code)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not descendants(node.process.pid):
            os.sched_yield()
        assert node.end() == 0
        waiting.join(timeout=5)
        assert not waiting.is_alive()
        assert answers in ([], [502], [409], [410])


def test_an_exposed_port_is_reached_by_its_url_until_it_is_exposed_no_more(tmp_path: Path) -> None:
    with running(tmp_path / "node", min_level="none") as node:
        contained(node)
        create(node, "one")
        run(node, "one", "mkdir site; echo inside > site/page; python3 -m http.server 8000 -d site > /dev/null 2>&1 &")
        with node.control() as api, httpx.Client(trust_env=False) as client:
            assert api.post("/sandboxes/one/exposures", json={"port": 0}).status_code == 422
            exposure = api.post("/sandboxes/one/exposures", json={"port": 8000, "name": "site"}).json()
            assert api.get("/sandboxes/one/exposures").json()["exposures"] == [exposure]
            assert exposure["url"].startswith(f"{node.url}/exposed/")
            deadline = time.monotonic() + 20
            while (page := client.get(f"{exposure['url']}page")).status_code == 502:
                assert time.monotonic() < deadline, page.text
            assert page.text == "inside\n"
            assert client.get(f"{node.url}/exposed/{'0' * 32}/page").status_code == 404
            gone = f"/sandboxes/one/exposures/{exposure['exposure_id']}"
            assert [api.delete(gone).status_code for _ in range(2)] == [204, 404]
            assert client.get(f"{exposure['url']}page").status_code == 404
