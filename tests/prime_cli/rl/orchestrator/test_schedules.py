"""Thousands of seeded schedules of the orchestrator's loop in virtual time. A failure prints its seed."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import pkgutil
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
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
    plan.schedule = dataclasses.replace(plan.schedule, max_off_policy_steps=0)
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


def lose_the_trainer(loop: VirtualLoop, seed: int) -> None:
    plan = drawn_plan(seed)
    plan.schedule = dataclasses.replace(plan.schedule, max_steps=4)
    plan.trainer_dies_after = random.Random(seed).randint(1, 2)
    began = loop.time()
    with pytest.raises(PrimeError, match="the orchestrator waited 3600 s for policy"):
        run(loop, plan, seed)
    took = loop.time() - began
    assert took < plan.schedule.policy_timeout_s + 2000, f"seed {seed}: it took {took:.0f} s"


def test_a_trainer_that_dies_ends_every_wait_for_it_by_name(loop: VirtualLoop) -> None:
    for seed in range(30_000, 30_100):
        lose_the_trainer(loop, seed)


SABOTAGES: dict[str, tuple[str, str, Callable[[Any], Any], Callable[[VirtualLoop, int], None]]] = {
    "too old groups are trained on": (
        "is too old for batch",
        "gate.StalenessGate.is_too_old", lambda real: lambda self, version, step: False, finish_whole,
    ),
    "batches are shipped without a hold": (
        "was shipped 2 ahead",
        "gate.StalenessGate.may_ship", lambda real: lambda self, **at: True, finish_whole,
    ),
    "permits are not counted": (
        "rollouts run",
        "dispatcher.Dispatcher.has_room_for", lambda real: lambda self, rollouts: True, finish_whole,
    ),
    "a group is handed over twice": (
        "is in two batches",
        "dispatcher.Dispatcher.outcomes", lambda real: lambda self: [o for o in real(self) for _ in range(2)],
        finish_whole,
    ),
    "a group is lost": (
        "in a batch, dropped, owed",
        "sink.Sink.take", lambda real: lambda self, group: group.opened.number % 5 and real(self, group), finish_whole,
    ),
    "groups that are too old run on": (
        "after it was too old",
        "dispatcher.Dispatcher.cancel", lambda real: lambda self, number, **options: None, finish_whole,
    ),
    "the state forgets what waits for its batch": (
        "in a batch, dropped, owed",
        "loop.Orchestrator.state",
        lambda real: lambda self: (state := real(self)) | {"owed": state["owed"][1:]}, stop_and_go_on,
    ),
    "what is owed is forgotten": (
        "in a batch, dropped, owed",
        "loop.Orchestrator.restore",
        lambda real: lambda self, state: real(self, {**state, "owed": []}), stop_and_go_on,
    ),
    "the sampler begins anew": (
        "seed 40",
        "samplers.ShuffledSampler.restore", lambda real: lambda self, state: None, be_the_same_at_any_speed,
    ),
    "groups are taken as they come": (
        "seed 40",
        "loop.Schedule.is_synchronous", lambda real: property(lambda self: False), be_the_same_at_any_speed,
    ),
    "the loop waits without a bound": (
        "every task waits",
        "loop.asyncio.timeout", lambda real: lambda seconds: contextlib.nullcontext().__class__(), lose_the_trainer,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SABOTAGES)
def test_the_simulation_notices_when(what: str, monkeypatch: pytest.MonkeyPatch, loop: VirtualLoop) -> None:
    words, where, sabotaged, check = SABOTAGES[what]
    path = f"prime_cli.rl.orchestrator.{where}"
    owner, name = path.rsplit(".", 1)
    monkeypatch.setattr(path, sabotaged(inspect.getattr_static(pkgutil.resolve_name(owner), name)))

    def look() -> None:
        for seed in range(40_000, 40_100):
            check(loop, seed)

    with pytest.raises(AssertionError, match=words):
        look()


@pytest.mark.slow
def test_many_more_schedules_hold_too(loop: VirtualLoop) -> None:
    for seed in range(100_000, 120_000):
        finish_whole(loop, seed)
        if seed % 4 == 0:
            stop_and_go_on(loop, seed)
            be_the_same_at_any_speed(loop, seed)
