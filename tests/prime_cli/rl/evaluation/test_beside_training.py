"""Evaluations beside the orchestrator's real loop, in virtual time: neither stops the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from prime_cli.rl.evaluation.evaluator import EvalSet, Evaluator
from prime_cli.rl.orchestrator.evaluations import WhatIsLeft
from prime_cli.rl.orchestrator.loop import Orchestrator
from prime_cli.rl.orchestrator.sources import Source
from tests.prime_cli.rl.evaluation.test_evaluator import Kept
from tests.prime_cli.rl.orchestrator.simulation import World, drawn_plan
from tests.prime_cli.rl.orchestrator.virtual_time import VirtualLoop


@pytest.fixture(scope="module")
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@dataclass
class EvaluatedWorld(World):
    """The world of the orchestrator's own tests, with all their checks, and two sets that are evaluated in it."""

    eval_s: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kept = Kept()
        self.evaluating = 0
        self.shipped_while_evaluating = 0

    def make_loop(self, sources: list[Source]) -> Orchestrator:
        rng = random.Random(f"sets/{self.timing}")
        self.sets = [
            EvalSet(
                f"eval/{name}", [{"example_id": i} for i in range(rng.randint(1, 12))], rng.randint(1, 3),
                rng.randint(1, 3), self._evaluate,
            )
            for name in ("a", "b")
        ]  # fmt: skip
        self.evaluator = Evaluator(
            self.sets,
            policy=self.policy,
            output=self.kept,
            limit=self.concurrency.limit,
            others=lambda: self.orchestrator.dispatcher.rollouts_in_flight,
            max_steps=self.plan.schedule.max_steps,
            timeout_s=1e6,
        )
        orchestrator = Orchestrator(
            self.plan.schedule,
            sources,
            policy=self.policy,
            concurrency=WhatIsLeft(self.concurrency, lambda: self.evaluator.claims),
            output=self,
            seed=5,
            before_opening=self.evaluator.advance,
        )
        self.evaluator.observers.append(orchestrator.wake)
        return orchestrator

    async def work(self) -> None:
        await self.orchestrator.produce()
        await self.evaluator.finish(lambda text: None)

    def ship(self, *arguments: Any) -> None:
        super().ship(*arguments)
        self.shipped_while_evaluating += self.evaluating > 0

    async def _evaluate(self, example: Mapping[str, Any], numbers: Sequence[int]) -> list[dict[str, Any]]:
        training = sum(group.size for group in self.running.values())
        if self.evaluating and not self.plan.permits_change:
            assert training + self.evaluating + 1 <= self.plan.permits
        self.evaluating += 1
        try:
            await asyncio.sleep(self.eval_s * self.rng.expovariate(1.0))
        finally:
            self.evaluating -= 1
        return [{"example_id": example["example_id"], "reward": 1.0} for _ in numbers]


def run(loop: VirtualLoop, seed: int, **options: Any) -> EvaluatedWorld:
    async def go() -> EvaluatedWorld:
        world = EvaluatedWorld(drawn_plan(seed), seed, **options)
        await world.run()
        return world

    world: EvaluatedWorld = loop.run(go())
    return world


@pytest.mark.parametrize("seed", range(60))
def test_all_batches_are_shipped_and_the_first_and_the_last_policy_are_evaluated_whole(
    loop: VirtualLoop, seed: int
) -> None:
    world = run(loop, seed)
    steps = world.plan.schedule.max_steps
    assert len(world.shipped) == steps, f"seed {seed}"
    for one in world.sets:
        mine = [step for name, step in world.kept.began if name == one.name]
        assert (mine[0], mine[-1]) == (0, steps), f"seed {seed}"
        expected = len(one.examples) * one.rollouts_per_example
        assert all(world.kept.figures[one.name, step]["rollouts"] == expected for step in mine), f"seed {seed}"


def test_the_training_goes_on_while_an_evaluation_takes_long(loop: VirtualLoop) -> None:
    shipped = sum(run(loop, seed, eval_s=1000.0).shipped_while_evaluating for seed in range(20))
    steps = sum(drawn_plan(seed).schedule.max_steps for seed in range(20))
    assert shipped > 0.9 * steps
