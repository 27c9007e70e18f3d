"""The published SDK prime-traces, unchanged, against this hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_hub import RunningHub

NewUser = Callable[[], tuple[str, str]]
FLOW = """
import json
from prime_traces import LineFormat, TracesClient

def trace(name, reward):
    return {"id": name, "nodes": [{"message": {"role": "user", "content": "what is " + name}}], "calls": [],
            "rewards": {"exact": {"score": reward, "weight": 1.0}}, "timing": {"start": 1700000000.0},
            "run": {"id": "run-1", "type": "eval"}}

client = TracesClient()
(receipt,) = client.upload_records([trace("a", 0.0), trace("b", 1.0)], context={"source": "sdk"})
(again,) = client.upload_records([trace("a", 0.0), trace("b", 1.0)], context={"source": "sdk"}, compress=False)
assert receipt == again and receipt.status == "committed", (receipt, again)
episode = {"id": "ep", "traces": [trace("c", 0.5)], "env": {"id": "sums"}, "run": {"id": "run-1", "type": "eval"}}
client.upload_records([episode], line_format=LineFormat.EPISODE)
listed = [row.trace_id for row in client.iter(run_id="run-1", limit=2)]
assert json.loads(client.get_raw("c")) == episode["traces"][0]
assert client.get("a").score.reward == 0.0
told = {"listed": sorted(listed), "episodes": [row.episode_id for row in client.list_episodes().items],
        "members": client.get_episode("ep").traces.trace_count}
if hasattr(client, "get_run"):
    told["run"] = client.get_run("run-1").trace_count
    told["nodes"] = len(client.list_nodes("a").items)
    told["found"] = [match.trace_id for match in client.search("is b", run_id="run-1").items]
client.delete("a")
client.delete_run("run-1")
told["left"] = len(client.list().items)
print(json.dumps(told))
"""


@pytest.mark.parametrize("version", ["0.0.10", "0.0.2"])
def test_the_published_sdk_uploads_lists_reads_and_deletes(
    hub: RunningHub, new_user: NewUser, tmp_path: Path, version: str
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    venv.create(tmp_path / "venv", with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", f"prime-traces=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"prime-traces cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    login = {"HOME": str(tmp_path), "PRIME_API_KEY": new_user()[1], "PRIME_TRACES_URL": hub.url}
    done = subprocess.run(
        [python, "-c", FLOW], capture_output=True, text=True, timeout=120, env={**os.environ, **login}, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["listed"], told["episodes"], told["members"], told["left"]) == (["a", "b", "c"], ["ep"], 1, 0)
    assert (told.get("run", 3), told.get("nodes", 1), told.get("found", ["b"])) == (3, 1, ["b"])
