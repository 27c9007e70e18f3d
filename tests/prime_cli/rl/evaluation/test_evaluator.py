"""What is evaluated when, beside a training that shares its permits: simulated, without processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.rl.evaluation.evaluator import EvalSet, Evaluator, Timetable


class APolicy:
    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.observers: list[Callable[[], None]] = []

    def becomes(self, version: int) -> None:
        self.version = version
        for observer in self.observers:
            observer()


class Kept:
    """An output that remembers."""

    def __init__(self) -> None:
        self.began: list[tuple[str, int]] = []
        self.rollouts: dict[tuple[str, int], list[Any]] = {}
        self.figures: dict[tuple[str, int], Mapping[str, float | int]] = {}

    def begin(self, name: str, step: int) -> None:
        assert (name, step) not in self.began
        self.began.append((name, step))

    def keep(self, name: str, step: int, rollouts: Sequence[Mapping[str, Any]]) -> None:
        self.rollouts.setdefault((name, step), []).extend(rollouts)

    def record(self, name: str, step: int, figures: Mapping[str, float | int]) -> None:
        assert (name, step) not in self.figures
        self.figures[name, step] = figures


class Rollouts:
    """Rollouts that end when they are let go, or after a chance time; counts how many run at once."""

    def __init__(self, seed: int | None = None) -> None:
        self.rng = None if seed is None else random.Random(seed)
        self.gate = asyncio.Event()
        self.at_once = self.most = 0
        self.done: list[tuple[int, int]] = []

    async def __call__(self, example: Mapping[str, Any], numbers: Sequence[int]) -> list[dict[str, Any]]:
        self.at_once += len(numbers)
        self.most = max(self.most, self.at_once)
        if self.rng is None:
            await self.gate.wait()
        else:
            for _ in range(self.rng.randint(0, 6)):
                await asyncio.sleep(0)
        self.at_once -= len(numbers)
        self.done += [(example["example_id"], number) for number in numbers]
        return [{"example_id": example["example_id"], "reward": 1.0} for _ in numbers]


def a_set(run: Any, *, name: str = "eval/a", examples: int = 4, k: int = 2, interval: int = 10, **more: Any) -> EvalSet:
    return EvalSet(name, [{"example_id": i} for i in range(examples)], k, interval, run, **more)


def an_evaluator(policy: APolicy, output: Kept, *sets: EvalSet, **more: Any) -> Evaluator:
    return Evaluator(sets, policy=policy, output=output, **{"limit": lambda: 100, "max_steps": 25, **more})


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_set_is_due_at_the_start_at_every_interval_and_at_the_end() -> None:
    timetable = Timetable(interval=10, max_steps=25)
    assert [timetable.newest_due(version) for version in (0, 9, 10, 19, 24, 25, 26)] == [0, 0, 10, 10, 20, 25, 25]
    assert Timetable(10, 25, skip_first_step=True).newest_due(9) is None


async def test_every_rollout_of_what_is_due_is_run_once_and_recorded_with_the_versions_it_saw() -> None:
    policy, output, run = APolicy(), Kept(), Rollouts()
    evaluator = an_evaluator(policy, output, a_set(run))
    evaluator.advance()
    await turns()
    policy.becomes(3)
    evaluator.advance()
    run.gate.set()
    await turns()
    assert sorted(run.done) == [(example, number) for example in range(4) for number in range(2)]
    figures = output.figures["eval/a", 0]
    assert (figures["reward/n"], figures["policy_version/start"], figures["policy_version/end"]) == (8, 0, 3)
    assert len(output.rollouts["eval/a", 0]) == 8
    evaluator.advance()
    assert output.began == [("eval/a", 0)], "nothing is due until the policy is 10"


async def test_an_evaluation_that_takes_longer_than_its_interval_is_followed_by_the_newest_that_is_due() -> None:
    policy, output, run = APolicy(), Kept(), Rollouts()
    evaluator = an_evaluator(policy, output, a_set(run))
    evaluator.advance()
    for version in (10, 20, 21):
        policy.becomes(version)
        evaluator.advance()
    run.gate.set()
    await turns()
    evaluator.advance()
    await turns()
    assert output.began == [("eval/a", 0), ("eval/a", 20)]
    assert output.figures["eval/a", 20]["policy_version/start"] == 21


async def test_permits_are_shared_and_one_rollout_may_always_run() -> None:
    policy, output, run = APolicy(), Kept(), Rollouts()
    training = 6
    evaluator = an_evaluator(policy, output, a_set(run), limit=lambda: 8, others=lambda: training)
    evaluator.advance()
    await turns()
    assert (evaluator.in_flight, evaluator.claims) == (2, 8)
    training = 100
    run.gate.set()
    await turns()
    run.gate.clear()
    evaluator.advance()
    await turns()
    assert (evaluator.in_flight, evaluator.claims) == (1, 6)


async def test_rollouts_that_are_scored_together_run_together_and_sets_take_turns() -> None:
    policy, output, run, other = APolicy(), Kept(), Rollouts(), Rollouts()
    sets = a_set(run, whole_groups=True), a_set(other, name="eval/b", k=1)
    evaluator = an_evaluator(policy, output, *sets, limit=lambda: 6)
    evaluator.advance()
    await turns()
    assert (run.at_once, other.at_once) == (4, 2)
    assert run.most % 2 == 0


async def test_the_end_waits_for_the_last_policy_and_its_evaluation() -> None:
    policy, output, run = APolicy(24), Kept(), Rollouts()
    evaluator = an_evaluator(policy, output, a_set(run))
    evaluator.go_on_after(24, {})
    said: list[str] = []
    end = asyncio.ensure_future(evaluator.finish(said.append))
    await turns()
    policy.becomes(25)
    await turns()
    run.gate.set()
    await end
    assert list(output.figures) == [("eval/a", 25)]
    assert said[:2] == ["waiting for policy 25, to evaluate it", "waiting for 8 rollouts of the evaluation eval/a"]


async def test_a_wait_in_which_nothing_happens_ends_with_its_name() -> None:
    evaluator = an_evaluator(APolicy(), Kept(), a_set(Rollouts()), timeout_s=0.01)
    with pytest.raises(PrimeError, match="8 rollouts of the evaluation eval/a and nothing came"):
        await evaluator.finish(lambda text: None)
    await evaluator.close()


async def test_what_a_rollout_raises_that_is_no_error_of_its_own_ends_the_run() -> None:
    async def broken(example: object, numbers: object) -> list[dict[str, Any]]:
        raise ZeroDivisionError

    evaluator = an_evaluator(APolicy(), Kept(), a_set(broken))
    evaluator.advance()
    await turns()
    with pytest.raises(ZeroDivisionError):
        evaluator.advance()


@pytest.mark.parametrize(
    ("version", "evaluated", "expected"),
    [(20, [0, 10, 20], []), (20, [0, 10], [20]), (23, [0, 10], []), (0, [], [0]), (25, [0, 10], [25])],
)
async def test_a_run_that_is_taken_up_again_evaluates_what_was_cut_off_and_nothing_twice(
    version: int, evaluated: list[int], expected: list[int]
) -> None:
    output = Kept()
    evaluator = an_evaluator(APolicy(version), output, a_set(Rollouts()))
    evaluator.go_on_after(version, {"eval/a": evaluated})
    evaluator.advance()
    await turns()
    assert [step for _, step in output.began] == expected
    await evaluator.close()


@pytest.mark.parametrize("seed", range(100))
async def test_under_any_schedule_every_rollout_runs_once_within_the_permits_and_the_last_policy_is_evaluated(
    seed: int,
) -> None:
    rng = random.Random(seed)
    policy, output = APolicy(), Kept()
    runs = [Rollouts(seed), Rollouts(seed + 1)]
    limit, max_steps = rng.randint(1, 8), rng.randint(1, 12)
    sets = [
        a_set(run, name=f"eval/{index}", examples=rng.randint(1, 5), k=rng.randint(1, 3), interval=rng.randint(1, 5),
              whole_groups=rng.random() < 0.3)
        for index, run in enumerate(runs)
    ]  # fmt: skip
    evaluator = an_evaluator(policy, output, *sets, limit=lambda: limit, max_steps=max_steps)

    async def train() -> None:
        while policy.version < max_steps:
            await turns(rng.randint(0, 30))
            policy.becomes(min(max_steps, policy.version + rng.randint(1, 2)))
            evaluator.advance()

    training = asyncio.ensure_future(train())
    await evaluator.finish(lambda text: None)
    await training
    group = max(one.rollouts_per_example if one.whole_groups else 1 for one in sets)
    assert max(run.most for run in runs) <= max(limit, group), f"seed {seed}"
    for one, run in zip(sets, runs, strict=True):
        mine = [step for name, step in output.began if name == one.name]
        assert mine == sorted(set(mine)), f"seed {seed}"
        assert (mine[0], mine[-1]) == (0, max_steps), f"seed {seed}"
        assert len(run.done) == len(mine) * len(one.examples) * one.rollouts_per_example, f"seed {seed}"
        assert all(len(output.rollouts[one.name, step]) == output.figures[one.name, step]["rollouts"] for step in mine)
