"""Checks on a hub that makes them: what a push leads to, and how it is read."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from hub_server.checks.checker import find_uv
from hub_server.checks.sandbox import available_isolation
from tests.running_hub import PRIME, Push, RunningHub, answer, make_wheel, start_hub

REQUIRES = "Requires-Dist: verifiers>=0.1.14,<0.3.2.dev0\n"
GOOD = """
import verifiers as vf
from datasets import Dataset


def says_ok(completion, **_):
    return float(completion[-1]["content"] == "OK")


def load_environment():
    rows = [{"question": f"q{number}", "answer": "a"} for number in range(7)]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:2]), rubric=vf.Rubric(funcs=[says_ok])
    )
"""
BAD = "raise RuntimeError('not today')\n"


@pytest.fixture(scope="module")
def checking_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that checks what is published on it."""
    found, reason = available_isolation(tmp_path_factory.mktemp("isolation"))
    if found is None or find_uv() is None:
        pytest.skip(f"this machine makes no checks: {reason or 'uv is missing'}")
    hub = start_hub(tmp_path_factory.mktemp("checking") / "data", "--checks", "1")
    yield hub
    hub.end()


def push(hub: RunningHub, owner: str, name: str, code: str, *, requires: str = "", **options: Any) -> None:
    """Publish a wheel with this code."""
    with hub.client(hub.key_of(owner)) as client:
        pushed = Push(client, name, "0.1.0", code=code, **options)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{requires}"
        pushed.filename, pushed.wheel = make_wheel(name, "0.1.0", code=code, metadata=metadata)
        assert pushed.run().is_success


def outcome(hub: RunningHub, owner: str, name: str, *, within_s: float = 60) -> dict[str, Any]:
    """Wait for the check of the newest version and return it."""
    deadline = time.monotonic() + within_s
    with hub.client(hub.key_of(owner)) as client:
        while True:
            check: dict[str, Any] = answer(client.get(f"/environmentshub/{owner}/{name}/@latest"))["data"]["check"]
            if check["status"] not in ("queued", "running"):
                return check
            assert time.monotonic() < deadline, f"still {check['status']}"
            time.sleep(0.2)


@pytest.mark.timeout(300)
def test_a_good_environment_is_installed_imported_loaded_and_rolled_out(checking_hub: RunningHub) -> None:
    push(checking_hub, "alice", "good", GOOD, requires=REQUIRES)
    check = outcome(checking_hub, "alice", "good", within_s=240)
    assert (check["status"], check["badge"]) == ("passed", "runs"), check
    assert (check["num_train"], check["num_eval"], check["environment_type"]) == (7, 2, "SingleTurnEnv")
    assert {"name": "says_ok", "weight": 1.0} in check["rewards"]
    assert (check["rollout"]["status"], check["rollout"]["reward"]) == ("passed", 1.0)
    assert check["rollout"]["model_calls"] == 1
    assert set(check["timings"]) == {"install_s", "import_s", "load_s", "rollout_s"}
    assert check["verifiers"].startswith("0.1.14")
    assert check["isolation"] == "namespaces"
    with checking_hub.client() as nobody:
        badge = nobody.get(f"{checking_hub.url}/environments/alice/good/badge.svg")
        page = nobody.get(f"{checking_hub.url}/dashboard/environments/alice/good").text
    assert badge.headers["content-type"] == "image/svg+xml"
    assert "check: runs" in "".join(ElementTree.fromstring(badge.text).itertext())
    assert "says_ok" in page
    assert "runs" in page


def test_a_broken_environment_is_published_all_the_same_and_says_where_it_fails(checking_hub: RunningHub) -> None:
    push(checking_hub, "alice", "broken", BAD)
    check = outcome(checking_hub, "alice", "broken")
    assert (check["status"], check["badge"]) == ("failed", "fails at import")
    assert check["reason"] == "RuntimeError: not today"
    with checking_hub.client() as nobody:
        (row,) = answer(nobody.get("/environmentshub/alice/broken/versions"))["data"]["versions"]
        page = nobody.get(f"{checking_hub.url}/dashboard/environments/alice/broken").text
        home = nobody.get(f"{checking_hub.url}/?owner=alice&q=broken").text
    assert '<a href="/?q=broken&amp;owner=alice&amp;check=failed">failed</a> <span class="quiet">1</span>' in home
    assert '<span class="badge bad">fails at import</span>' in page
    assert row["check"] == {key: check[key] for key in ("id", "status", "badge", "reason")}
    assert "RuntimeError: not today" in page


def test_older_clients_read_checks_as_actions_and_repeat_them(checking_hub: RunningHub) -> None:
    push(checking_hub, "alice", "acted", BAD)
    check = outcome(checking_hub, "alice", "acted")
    with checking_hub.client(checking_hub.key_of("alice")) as client:
        status = answer(client.get("/environmentshub/alice/acted/status"))["data"]
        assert status["action"] == {"status": "FAILED", "job_id": check["id"]}
        (action,) = answer(client.get("/environmentshub/alice/acted/actions"))["data"]["actions"]
        assert (action["id"], action["status"], action["trigger"]) == (check["id"], "FAILED", "publish")
        assert action["version"]["semantic_version"] == "0.1.0"
        logs = answer(client.get(f"/environmentshub/alice/acted/actions/{check['id']}/logs"))["data"]["logs"]
        assert "RuntimeError: not today" in logs
        assert logs.endswith("failed at import: RuntimeError: not today")
        short = client.get(f"/environmentshub/alice/acted/actions/{check['id']}/logs", params={"tail_lines": 1})
        assert answer(short)["data"]["logs"] == "failed at import: RuntimeError: not today"
        again = answer(client.post("/environmentshub/alice/acted/actions/retry", json={}))["data"]
        assert again["success"] is True
    assert outcome(checking_hub, "alice", "acted")["id"] == again["job_id"] != check["id"]


def test_older_clients_list_environments_with_and_by_the_state_of_their_checks(checking_hub: RunningHub) -> None:
    push(checking_hub, "lister", "listed", BAD)
    outcome(checking_hub, "lister", "listed")
    with checking_hub.client() as nobody:
        asked = {"owner": "lister", "include_ci_status": "true"}
        (row,) = answer(nobody.get("/environmentshub/", params=asked))["data"]
        assert row["latest_ci_status"] == "FAILED"
        assert answer(nobody.get("/environmentshub/", params={**asked, "ci_status": "FAILED"}))["total"] == 1
        assert answer(nobody.get("/environmentshub/", params={**asked, "ci_status": "SUCCESS"}))["total"] == 0
        refused = nobody.get("/environmentshub/", params={"ci_status": "GREEN"})
    assert (refused.status_code, refused.json()["detail"]) == (
        400, "no action status 'GREEN'; there are PENDING, RUNNING, SUCCESS, FAILED, CANCELLED"
    )  # fmt: skip


def test_info_and_versions_say_what_the_check_found(checking_hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(checking_hub, "alice", "told", BAD)
    outcome(checking_hub, "alice", "told")
    monkeypatch.setenv("PRIME_API_BASE_URL", checking_hub.url)
    told = [
        subprocess.run([*PRIME, "env", command, "alice/told"], capture_output=True, text=True, env=dict(os.environ))
        for command in ("info", "versions")
    ]
    assert "fails at import; RuntimeError: not today" in told[0].stdout
    assert "fails at import" in told[1].stdout


def test_a_private_environment_has_no_badge_for_others(checking_hub: RunningHub) -> None:
    push(checking_hub, "alice", "hidden", BAD, visibility="PRIVATE")
    check = outcome(checking_hub, "alice", "hidden")
    address = f"{checking_hub.url}/environments/alice/hidden/badge.svg"
    with checking_hub.client() as nobody, checking_hub.client(checking_hub.key_of("alice")) as owner:
        assert nobody.get(address).status_code == 404
        assert nobody.get(f"/environmentshub/alice/hidden/actions/{check['id']}/logs").status_code == 404
        assert "fails at import" in owner.get(address).text


def test_the_runner_of_a_killed_hub_ends_with_it_and_the_next_hub_does_its_work(tmp_path: Path) -> None:
    if available_isolation(tmp_path / "isolation")[0] is None or find_uv() is None:
        pytest.skip("this machine makes no checks")
    first = start_hub(tmp_path / "data", "--checks", "1")
    push(first, "alice", "slow", "import time\ntime.sleep(8)\nraise RuntimeError('awake')\n")
    with first.client() as nobody:
        while answer(nobody.get("/environmentshub/alice/slow/@latest"))["data"]["check"]["status"] != "running":
            time.sleep(0.1)
    while not list((tmp_path / "data" / "checks").glob("owners/*/*-*/venv")):
        time.sleep(0.1)
    first.end(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _runners_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _runners_of(tmp_path) == [], "nothing that the hub started lives on"
    with sqlite3.connect(tmp_path / "data" / "hub.db") as database:
        # As if the minute had passed after which a runner without a sign of life counts as dead.
        database.execute("UPDATE checks SET renewed_at = datetime('now', '-2 minutes')")
    second = start_hub(tmp_path / "data", "--checks", "1")
    second.users = first.users
    try:
        check = outcome(second, "alice", "slow")
    finally:
        assert second.end() == 0
    assert (check["reason"], check["attempts"]) == ("RuntimeError: awake", 2)
    assert list((tmp_path / "data" / "checks").glob("*-*")) == []
    assert list((tmp_path / "data" / "checks").glob("owners/*/*-*")) == []


def test_a_hub_that_makes_no_checks_says_not_checked_yet(hub: RunningHub) -> None:
    push(hub, "checks-off", "waiting", BAD)
    with hub.client() as nobody:
        check = answer(nobody.get("/environmentshub/checks-off/waiting/@latest"))["data"]["check"]
    assert (check["status"], check["badge"]) == ("queued", "not checked yet")


def test_an_operator_has_a_version_checked_again(hub: RunningHub) -> None:
    push(hub, "checks-again", "redone", BAD)
    place = ["--data-dir", str(hub.data_dir)]
    with sqlite3.connect(hub.data_dir / "hub.db", timeout=30) as database:
        database.execute("UPDATE checks SET status = 'failed'")
    done = subprocess.run([*PRIME, "--plain", "hub", "check", "checks-again/redone@0.1.0", *place], capture_output=True)
    assert done.stdout.decode() == "checks-again/redone 0.1.0 waits for its check\n"
    with hub.client(hub.key_of("checks-again")) as client:
        actions = answer(client.get("/environmentshub/checks-again/redone/actions"))["data"]["actions"]
    assert [(action["status"], action["trigger"]) for action in actions] == [
        ("PENDING", "operator"), ("FAILED", "publish")
    ]  # fmt: skip
    missing = subprocess.run([*PRIME, "hub", "check", "checks-again/other", *place], capture_output=True, text=True)
    assert missing.returncode == 2
    assert "environment checks-again/other not found on this hub" in missing.stderr


def _runners_of(folder: Path) -> list[str]:
    """Return the processes that name this folder in their arguments or environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        if place.name == str(os.getpid()):
            continue
        for name in ("cmdline", "environ"):
            try:
                if str(folder).encode() in (place / name).read_bytes():
                    found.append(place.name)
            except OSError:
                continue
    return found
