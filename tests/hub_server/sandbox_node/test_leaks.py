"""Nothing is left of executions, whatever is killed while they run: neither processes nor mounts nor control groups nor
folders nor descriptors.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.hub_server.sandbox_node.host_traces import are_gone, mounts
from tests.hub_server.sandbox_node.storm import Storm

# Of a node and its launcher, whichever descriptors come and go: connections that end, a pipe of one that starts.
SLACK = 4


async def weather(tmp_path: Path, executions: int, kills: dict[str, int], seed: int) -> Storm:
    """Let a storm pass, and see that nothing is left of it."""
    data_dir = tmp_path / "node"
    mounted = mounts(tmp_path)
    async with Storm(data_dir, random.Random(seed), kills) as storm:
        storm.begin()
        if storm.node.level != "container":
            pytest.skip(f"needs bubblewrap with control groups; the node got level {storm.node.level}")
        await storm.run(20)
        before = await storm.calm()
        work = {path.name for path in (data_dir / "work").iterdir()}
        await storm.run(executions)
        for what in kills:
            await storm.kill(what)
        await storm.run(20)
        after = await storm.calm()
        assert after[0] <= before[0] + SLACK, "descriptors of the node"
        assert after[1] <= before[1] + SLACK, "descriptors of the launcher"
        storm.note()
        assert storm.node.end() == 0
    assert are_gone(storm.seen), [process for process in storm.seen if process.lives]
    assert mounts(tmp_path) == mounted
    assert [folder for folder in storm.groups if folder.exists()] == []
    assert {path.name for path in (data_dir / "work").iterdir()} == work
    assert sum(storm.outcomes.values()) == executions + 40
    assert storm.outcomes["200"] > executions / 2, storm.outcomes
    assert storm.outcomes["500"] == 0, storm.outcomes
    return storm


async def test_nothing_is_left_of_executions_with_kills_of_everything(tmp_path: Path) -> None:
    storm = await weather(tmp_path, 160, {"any": 12, "launcher": 60, "node": 90}, seed=1)
    assert storm.killed["launcher"] >= 1
    assert storm.killed["node"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_nothing_is_left_of_ten_thousand_executions_with_random_kills(tmp_path: Path) -> None:
    storm = await weather(tmp_path, 10_000, {"any": 25, "launcher": 700, "node": 1000}, seed=2)
    assert storm.killed["any"] > 100


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_is_left_of_many_executions_that_nobody_disturbs(tmp_path: Path) -> None:
    storm = await weather(tmp_path, 3000, {}, seed=3)
    assert set(storm.outcomes) <= {"200", "408"}
