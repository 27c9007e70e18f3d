"""Collecting what nothing needs, with the real command on real data folders."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.hub_server.test_traces import lines_of, trace, upload
from tests.running_hub import PRIME, Push, RunningHub, answer, put, sha256, start_hub

DAY_S = 24 * 3600


def gc(data_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `prime hub gc`."""
    command = [*PRIME, "--output", "json", "hub", "gc", "--data-dir", str(data_dir), *options]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


def blobs_of(data_dir: Path) -> dict[str, Path]:
    return {path.name: path for path in (data_dir / "blobs" / "sha256").glob("*/*")}


def test_only_what_nothing_names_and_nobody_touched_lately_goes(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    with hub.client(hub.admin_key) as client:
        kept, deleted = Push(client, "kept", "0.1.0"), Push(client, "kept", "0.2.0", code="VALUE = 2\n")
        assert kept.run().is_success
        assert deleted.run().is_success
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
        answer(client.delete(f"/environmentshub/{slug}/kept/@0.2.0"))
        draft = Push(client, "kept", "0.3.0", code="VALUE = 3\n")
        draft.resolve()
        assert put(answer(draft.announce_wheel())["data"]["upload_url"], draft.wheel).is_success
        before = blobs_of(hub.data_dir)
        orphan = hub.data_dir / "blobs" / "sha256" / "ab" / ("ab" * 32)
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"orphan")
        refused = gc(hub.data_dir, "--grace-hours", "0")
        assert refused.returncode == 1
        assert "an upload may be under way" in refused.stderr
        young = json.loads(gc(hub.data_dir).stdout)
        assert (young["blobs"], young["drafts"], young["blobs_kept"]) == (0, 0, len(before) + 1)
        os.utime(orphan, (time.time() - 2 * DAY_S,) * 2)
        beside = json.loads(gc(hub.data_dir).stdout)
        assert (beside["blobs"], beside["bytes_freed"]) == (1, 6)
        assert blobs_of(hub.data_dir) == before
    hub.end()
    # As if the collection before had been cut off between its two steps.
    named = blobs_of(hub.data_dir)[sha256(kept.wheel)]
    named.replace(named.with_suffix(".gone"))
    (hub.data_dir / "blobs" / "incoming" / "cut-off").write_bytes(b"half")
    done = json.loads(gc(hub.data_dir, "--grace-hours", "0").stdout)
    assert (done["drafts"], done["unfinished_uploads"]) == (1, 1)
    left = blobs_of(hub.data_dir)
    assert {sha256(kept.wheel), sha256(kept.source)} <= left.keys()
    assert not {sha256(deleted.wheel), sha256(deleted.source), sha256(draft.wheel)} & left.keys()
    assert done["blobs_kept"] == len(left) == 3
    assert json.loads(gc(hub.data_dir, "--grace-hours", "0").stdout)["blobs"] == 0
    hub = start_hub(tmp_path / "data")
    try:
        check_after_collection(hub, slug, kept, deleted, draft)
    finally:
        hub.end()


def check_after_collection(hub: RunningHub, slug: str, kept: Push, deleted: Push, draft: Push) -> None:
    """The published version is whole, the deleted one is not given again, the cut-off push succeeds when repeated."""
    with hub.client(hub.admin_key) as client:
        url = answer(client.get(f"/environmentshub/{slug}/kept/@latest"))["data"]["wheel_url"]
        assert hub.client().get(url.replace(url.split("/index")[0], hub.url)).content == kept.wheel
        deleted.client = draft.client = client
        assert deleted.announce_wheel().status_code == 409
        assert draft.run().is_success


def test_the_bytes_of_deleted_traces_go_and_those_of_others_stay(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    with hub.client(hub.admin_key) as client:
        run = {"id": "run-2", "type": "eval"}
        answer(upload(client, lines_of(trace("kept"), trace("shares its upload", run=run))))
        kept = blobs_of(hub.data_dir).keys()
        answer(upload(client, lines_of(trace("gone", run=run))))
        answer(client.delete("/traces", params={"run_id": "run-2"}))
    hub.end()
    assert json.loads(gc(hub.data_dir, "--grace-hours", "0").stdout)["blobs"] == 1
    assert blobs_of(hub.data_dir).keys() == kept
    hub = start_hub(tmp_path / "data")
    try:
        with hub.client(hub.admin_key) as client:
            assert answer(client.get("/traces/kept", params={"raw": True}))["id"] == "kept"
            assert client.get("/traces/gone").status_code == 404
    finally:
        hub.end()


@pytest.mark.parametrize("folder", ["nothing", "empty"])
def test_a_folder_without_a_hub_is_one_line(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    refused = gc(tmp_path / folder)
    assert refused.returncode == 1
    assert "is not the data folder of a hub" in refused.stderr
    assert not list((tmp_path / "empty").iterdir())
