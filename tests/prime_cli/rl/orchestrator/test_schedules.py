"""Thousands of seeded schedules of the orchestrator's loop in virtual time. A failure prints its seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from tests.prime_cli.rl.orchestrator.simulation import Plan, World, drawn_plan
from tests.prime_cli.rl.orchestrator.virtual_time import VirtualLoop


@pytest.fixture(scope="module")
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def run(loop: VirtualLoop, plan: Plan, timing: int, **options: object) -> World:
    async def go() -> World:
        return await World(plan, timing, **options).run()  # type: ignore[arg-type]

    try:
        world: World = loop.run(go())
    except BaseException as error:
        error.add_note(f"the schedule's seed is {timing}: {plan}")
        raise
    return world


def finish_whole(loop: VirtualLoop, seed: int) -> None:
    plan = drawn_plan(seed)
    world = run(loop, plan, seed)
    assert len(world.shipped) == plan.schedule.max_steps, f"seed {seed}"


def stop_and_go_on(loop: VirtualLoop, seed: int) -> None:
    plan = drawn_plan(seed)
    moment = random.Random(seed).randint(1, plan.schedule.max_steps - 1)
    stopped = run(loop, plan, seed, stop_after=moment)
    step = random.Random(seed + 1).choice(sorted(stopped.states))
    state = json.loads(stopped.states[step])
    again = run(loop, plan, seed + 1, restored=state)
    assert [number for number, _ in again.shipped] == list(range(step + 1, plan.schedule.max_steps + 1)), f"seed {seed}"
    owed = [entry["number"] for entry in state["owed"]]
    first = list(dict.fromkeys(again.dispatches))
    assert first[: len(owed)] == owed[: len(first)], f"seed {seed}: what is owed is opened first"
    in_old_batches = {number for at, groups in stopped.shipped if at <= step for number, _, _ in groups}
    assert not in_old_batches & set(again.dispatches), f"seed {seed}: nothing is run again"


def be_the_same_at_any_speed(loop: VirtualLoop, seed: int) -> None:
    plan = drawn_plan(seed)
    plan.schedule = type(plan.schedule)(**{**vars(plan.schedule), "max_off_policy_steps": 0})
    plan.permits_change = False
    whole = run(loop, plan, seed)
    other = run(loop, plan, seed + 1)
    assert whole.shipped == other.shipped, f"seed {seed}"
    step = random.Random(seed).randint(1, plan.schedule.max_steps - 1)
    again = run(loop, plan, seed + 2, restored=json.loads(other.states[step]))
    assert whole.shipped == [*whole.shipped[:step], *again.shipped], f"seed {seed}"


def test_every_schedule_yields_whole_batches_in_order_of_fresh_groups_each_used_once(loop: VirtualLoop) -> None:
    for seed in range(1000):
        finish_whole(loop, seed)


def test_a_run_that_is_stopped_anywhere_goes_on_without_losing_or_repeating_a_group(loop: VirtualLoop) -> None:
    for seed in range(10_000, 10_500):
        stop_and_go_on(loop, seed)


def test_a_synchronous_run_ships_the_same_batches_at_any_speed_and_after_any_stop(loop: VirtualLoop) -> None:
    for seed in range(20_000, 20_200):
        be_the_same_at_any_speed(loop, seed)


@pytest.mark.slow
def test_many_more_schedules_hold_too(loop: VirtualLoop) -> None:
    for seed in range(100_000, 120_000):
        finish_whole(loop, seed)
        if seed % 4 == 0:
            stop_and_go_on(loop, seed)
            be_the_same_at_any_speed(loop, seed)
