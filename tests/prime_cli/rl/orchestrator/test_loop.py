"""The orchestrator's loop over a run directory: what it leaves there, and when it gives up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.rl.orchestrator.algorithms import GroupMean
from prime_cli.rl.orchestrator.curriculum import StaticConcurrency
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup
from prime_cli.rl.orchestrator.loop import Orchestrator, Schedule
from prime_cli.rl.orchestrator.output import RunOutput
from prime_cli.rl.orchestrator.samplers import ShuffledSampler
from prime_cli.rl.orchestrator.sources import Source
from prime_cli.rl.run_directory import RunDirectory, create_run_directory, read_metrics
from prime_cli.rl.transport import Sample, read_batch
from tests.prime_cli.rl.orchestrator.simulation import SimulatedPolicy, a_rollout
from tests.prime_cli.rl.orchestrator.virtual_time import VirtualLoop

Reward = Callable[[OpenGroup, int], float | None]
"""The reward of a member of a group; None for one that failed."""


class QuickTrainer(SimulatedPolicy):
    """Trains a batch in the moment that it is there."""

    def follow(self, output: RunOutput) -> RunOutput:
        ship = output.ship

        def shipped(cut: Any, *rest: Any) -> None:
            ship(cut, *rest)
            self.version = cut.step
            asyncio.get_running_loop().call_later(1.0, self.announce)

        output.ship = shipped  # type: ignore[method-assign]
        return output


def produce(run: RunDirectory, reward: Reward, *, steps: int = 3, lag: int = 1, **options: Any) -> None:
    """Run the loop over groups of two from each source, batches of eight, in virtual time."""

    async def run_group(opened: OpenGroup) -> list[dict[str, Any]]:
        await asyncio.sleep(0.5 if opened.source == "slow" else 0.1)
        rewards = [reward(opened, member) for member in range(opened.size)]
        return [a_rollout(opened, member, value or 0.0, value is None) for member, value in enumerate(rewards)]

    names = options.pop("sources", ["only"])
    common = {"group_size": 2, "run_group": run_group, "algorithm": GroupMean()}
    sources = [Source(name, sampler=ShuffledSampler(9, 0), **(common | options.pop(name, {}))) for name in names]
    schedule = Schedule(batch_size=8, max_steps=steps, max_off_policy_steps=lag, policy_timeout_s=60)

    async def go() -> None:
        policy = QuickTrainer(0)
        output = policy.follow(RunOutput(run, schedule.gate))
        loop = Orchestrator(
            schedule, sources, policy=policy, concurrency=StaticConcurrency(16), output=output, **options
        )
        await loop.produce()

    loop = VirtualLoop()
    try:
        loop.run(go())
    finally:
        loop.close()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run_directory(tmp_path, "run", {})


def by_member(opened: OpenGroup, member: int) -> float:
    return float(member)


def test_a_batch_a_record_and_the_rollouts_of_each_step_are_left_with_the_state_of_the_loop(run: RunDirectory) -> None:
    produce(run, by_member)
    records, _ = read_metrics(run.metrics)
    assert [record["step"] for record in records] == [1, 2, 3]
    groups = []
    for step in (1, 2, 3):
        assert len(read_batch(run.batch(step)).samples) == 8
        state = json.loads((run.batch(step) / "orchestrator.json").read_text())
        assert state["step"] == step
        lines = [json.loads(line) for line in run.rollouts(step).read_text().splitlines()]
        assert {line["env"] for line in lines} == {"only"}
        groups += [line["group"] for line in lines]
    assert sorted(groups) == sorted([*range(1, 13), *range(1, 13)])


def test_failed_groups_are_counted_and_replaced(run: RunDirectory) -> None:
    produce(run, lambda opened, member: None if opened.number % 3 == 0 else float(member))
    records, _ = read_metrics(run.metrics)
    assert sum(record["errors"] for record in records) > 0
    assert [len(read_batch(run.batch(step)).samples) for step in (1, 2, 3)] == [8, 8, 8]


def test_a_run_in_which_every_rollout_fails_stops_and_says_why(run: RunDirectory) -> None:
    with pytest.raises(PrimeError, match=r"last 16 rollouts all ended with an error.*boom"):
        produce(run, lambda opened, member: None)


def test_a_run_that_has_nothing_to_learn_from_stops_and_says_why(run: RunDirectory) -> None:
    with pytest.raises(PrimeError, match=r"10 batches in a row.*1 of 4 groups were all right, 3 all wrong"):
        produce(run, lambda opened, member: float(opened.number % 4 == 0), steps=30, lag=0)


class Refusing:
    name = "refusing"

    def admits(self, group: FinishedGroup) -> bool:
        return False


def test_a_run_in_which_nothing_is_admitted_stops_and_says_why(run: RunDirectory) -> None:
    with pytest.raises(PrimeError, match="none of the last 80 rollouts was admitted"):
        produce(run, by_member, only={"gates": [Refusing()]})


def test_a_policy_that_never_comes_ends_the_wait_with_its_name(run: RunDirectory, monkeypatch: Any) -> None:
    monkeypatch.setattr(QuickTrainer, "follow", lambda self, output: output)
    with pytest.raises(PrimeError, match="waited 60 s for policy 1 and nothing came"):
        produce(run, by_member, lag=0)


def test_rollouts_that_never_come_end_the_wait_with_their_batch(run: RunDirectory, monkeypatch: Any) -> None:
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: asyncio.Event().wait())
    with pytest.raises(PrimeError, match=r"waited 60 s for rollouts of batch 1.*16 rollouts are in flight"):
        produce(run, by_member)


def test_a_bug_ends_the_run_with_its_own_words_and_leaves_no_rollout_running(run: RunDirectory) -> None:
    running: set[int] = set()

    async def run_group(opened: OpenGroup) -> list[dict[str, Any]]:
        running.add(opened.number)
        try:
            await asyncio.sleep(0.1 * opened.number)
            assert opened.number != 5, "a bug"
        finally:
            running.remove(opened.number)
        return [a_rollout(opened, member, float(member), False) for member in range(2)]

    with pytest.raises(AssertionError, match="a bug"):
        produce(run, by_member, only={"run_group": run_group})
    assert not running


class NumberOfGroup:
    """A filter that catches samples of every third group."""

    name = "third"

    def __init__(self, *, enforce: bool) -> None:
        self.enforce = enforce

    def catches(self, sample: Sample) -> bool:
        return sample.token_ids[0] % 3 == 0


def test_what_a_filter_drops_before_the_batch_is_replaced_and_after_it_is_not(tmp_path: Path) -> None:
    sizes = {}
    for when in ("pre_batch_filters", "post_batch_filters"):
        run = create_run_directory(tmp_path, when, {})
        produce(run, by_member, steps=2, **{when: [NumberOfGroup(enforce=True)]})
        sizes[when] = [len(read_batch(run.batch(step)).samples) for step in (1, 2)]
        assert read_metrics(run.metrics)[0][0]["filter/third"] > 0
    assert sizes["pre_batch_filters"] == [8, 8]
    assert sizes["post_batch_filters"][0] < 8


def test_a_filter_that_only_watches_counts_and_drops_nothing(run: RunDirectory) -> None:
    produce(run, by_member, post_batch_filters=[NumberOfGroup(enforce=False)])
    assert len(read_batch(run.batch(1)).samples) == 8
    assert read_metrics(run.metrics)[0][0]["filter/third"] == 2


def test_environments_are_mixed_by_their_ratio_and_have_figures_of_their_own(run: RunDirectory) -> None:
    produce(run, by_member, steps=40, lag=0, sources=["often", "slow"], often={"ratio": 3.0}, slow={"ratio": 1.0})
    records, _ = read_metrics(run.metrics)
    shipped = {name: sum(record[f"batch/{name}"] for record in records) for name in ("often", "slow")}
    assert 0.15 < shipped["slow"] / sum(shipped.values()) < 0.35
    mixed = next(record for record in records if "train/slow/reward/mean" in record)
    assert mixed["train/slow/reward/mean"] == mixed["train/often/reward/mean"] == 0.5


def test_rollouts_of_a_frozen_teacher_never_go_stale(run: RunDirectory) -> None:
    produce(run, by_member, sources=["slow"], slow={"frozen": True}, steps=4)
    records, _ = read_metrics(run.metrics)
    assert [(record["off_policy/max"], record["off_policy/dropped"]) for record in records] == [(0, 0)] * 4


def test_a_state_of_other_environments_is_refused(run: RunDirectory) -> None:
    produce(run, by_member, steps=1)
    state = json.loads((run.batch(1) / "orchestrator.json").read_text())

    async def restored() -> None:
        source = Source("other", 2, lambda opened: None, ShuffledSampler(9, 0), GroupMean())  # type: ignore[arg-type, return-value]
        schedule = Schedule(batch_size=8, max_steps=2, max_off_policy_steps=1, policy_timeout_s=60)
        output = RunOutput(run, schedule.gate)
        Orchestrator(
            schedule, [source], policy=SimulatedPolicy(1), concurrency=StaticConcurrency(8), output=output
        ).restore(state)

    with pytest.raises(PrimeError, match="has the environments other, and its checkpoint is of one with only"):
        asyncio.run(restored())
