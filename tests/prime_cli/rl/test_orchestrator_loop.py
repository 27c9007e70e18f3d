"""The orchestrator's loop with a simulated trainer and simulated rollouts: hundreds of seeded schedules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.orchestrator.algorithms import GroupMean
from prime_cli.rl.orchestrator.examples import shuffled_forever
from prime_cli.rl.orchestrator.loop import Orchestrator
from prime_cli.rl.run_directory import RunDirectory, create_run_directory, read_metrics
from prime_cli.rl.transport import read_batch


class SimulatedPolicy:
    """Stands for the watcher: its version rises when the simulated trainer says so."""

    def __init__(self) -> None:
        self.version = 0
        self.changed = asyncio.Event()
        self.update_seconds = 0.0


def a_config(tmp_path: Path, **changes: Any) -> RLConfig:
    values: dict[str, Any] = {
        "model": str(tmp_path),
        "env": [{"id": "simulated"}],
        "max_steps": 5,
        "batch_size": 8,
        "rollouts_per_example": 2,
        **changes,
    }
    return RLConfig.model_validate(values)


def a_rollout(example: int, reward: float, error: str | None = None) -> dict[str, Any]:
    tokens = {
        "prompt_ids": [example], "completion_ids": [1, 2], "completion_mask": [1, 1],
        "completion_logprobs": [-1.0, -1.0],
    }  # fmt: skip
    return {
        "example_id": example,
        "reward": reward,
        "error": {"error": error} if error else None,
        "metrics": {},
        "trajectory": [{"tokens": tokens}],
    }


async def simulate(config: RLConfig, run: RunDirectory, seed: int, *, failing: float = 0.0) -> list[int]:
    """Run the loop against a trainer that takes a random time per batch; return the examples in the order opened."""
    rng = random.Random(seed)
    policy = SimulatedPolicy()
    opened: list[int] = []

    async def run_group(example: int) -> list[dict[str, Any]]:
        opened.append(example)
        await asyncio.sleep(rng.expovariate(1000))
        failed = rng.random() < failing
        return [a_rollout(example, float(k), "boom" if failed else None) for k in range(config.rollouts_per_example)]

    async def train() -> None:
        for step in range(1, config.max_steps + 1):
            while not run.batch(step).exists():
                await asyncio.sleep(0.0005)
            await asyncio.sleep(rng.expovariate(500))
            policy.version = step
            policy.changed.set()

    examples: Iterator[int] = iter(range(10_000))
    orchestrator = Orchestrator(
        config, run, run_group=run_group, policy=policy, examples=examples, algorithm=GroupMean()
    )
    trainer = asyncio.ensure_future(train())
    await asyncio.wait_for(orchestrator.produce(), timeout=30)
    await asyncio.wait_for(trainer, timeout=30)
    return opened


@pytest.mark.parametrize("max_off_policy_steps", [0, 1, 3])
def test_every_schedule_yields_whole_batches_of_fresh_groups_each_used_once(
    tmp_path: Path, max_off_policy_steps: int
) -> None:
    config = a_config(tmp_path, orchestrator={"max_off_policy_steps": max_off_policy_steps})
    for seed in range(25):
        run = create_run_directory(tmp_path, f"run-{seed}", {})
        asyncio.run(simulate(config, run, seed))
        used: list[int] = []
        for step in range(1, config.max_steps + 1):
            samples = read_batch(run.batch(step)).samples
            assert len(samples) == config.batch_size, f"seed {seed}"
            used += sorted({sample.token_ids[0] for sample in samples})
        assert len(used) == len(set(used)) == config.max_steps * config.groups_per_batch, f"seed {seed}"
        records, _ = read_metrics(run.metrics)
        assert max(record["off_policy/max"] for record in records) <= max_off_policy_steps, f"seed {seed}"


def test_a_synchronous_run_opens_exactly_what_it_trains_on(tmp_path: Path) -> None:
    config = a_config(tmp_path, orchestrator={"max_off_policy_steps": 0})
    run = create_run_directory(tmp_path, "run", {})
    opened = asyncio.run(simulate(config, run, seed=1))
    assert opened == list(range(config.max_steps * config.groups_per_batch))


def test_failed_groups_are_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    run = create_run_directory(tmp_path, "run", {})
    asyncio.run(simulate(config, run, seed=2, failing=0.3))
    records, _ = read_metrics(run.metrics)
    assert len(records) == config.max_steps
    assert sum(record["errors"] for record in records) > 0


def test_a_run_in_which_every_rollout_fails_stops_and_says_why(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", {})
    with pytest.raises(PrimeError, match="boom"):
        asyncio.run(simulate(a_config(tmp_path), run, seed=3, failing=1.0))


def test_a_policy_that_never_comes_ends_the_wait_with_its_name(tmp_path: Path) -> None:
    config = a_config(tmp_path, orchestrator={"max_off_policy_steps": 0, "policy_timeout_s": 0.2})
    run = create_run_directory(tmp_path, "run", {})

    async def run_group(example: int) -> list[dict[str, Any]]:
        return [a_rollout(example, float(k)) for k in range(2)]

    async def alone() -> None:
        orchestrator = Orchestrator(
            config, run, run_group=run_group, policy=SimulatedPolicy(), examples=iter(range(100)), algorithm=GroupMean()
        )
        await orchestrator.produce()

    with pytest.raises(PrimeError, match="policy 1"):
        asyncio.run(alone())


def test_an_epoch_shows_every_example_once_and_the_next_in_another_order() -> None:
    examples = shuffled_forever(50, seed=4)
    first = [next(examples) for _ in range(50)]
    second = [next(examples) for _ in range(50)]
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    again = shuffled_forever(50, seed=4)
    assert [next(again) for _ in range(50)] == first
