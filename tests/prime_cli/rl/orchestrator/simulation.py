"""A world for the orchestrator's loop: environments, a trainer and a watcher that are slow, fail, die and stutter.

Everything is drawn from one seed. The world keeps its own books from what it sees (what it was asked to run, what came
out) and holds every batch against them; it asks the loop for nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.rl.orchestrator.algorithms import GroupMean
from prime_cli.rl.orchestrator.curriculum import StaticConcurrency
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup
from prime_cli.rl.orchestrator.loop import Orchestrator, Schedule
from prime_cli.rl.orchestrator.samplers import ShuffledSampler
from prime_cli.rl.orchestrator.sink import Cut
from prime_cli.rl.orchestrator.sources import Source

EXAMPLES = 17
_STUBBORN_S = 0.1


@dataclass
class Plan:
    """What is drawn for a run, and what may go wrong in it."""

    schedule: Schedule
    group_sizes: dict[str, int]
    permits: int
    failing: float = 0.0  # share of groups that fail as a whole
    alike: float = 0.0  # share of groups whose rewards are all the same
    refused: float = 0.0  # share of groups that an admission gate refuses
    long_tail: float = 0.0  # share of groups that take thirty times as long
    stubborn: float = 0.0  # share of groups that answer although they were cancelled, or take their time to end
    frozen: frozenset[str] = frozenset()
    permits_change: bool = False
    trainer_s: float = 1.0
    trainer_dies_after: int | None = None  # this batch is never trained


def drawn_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(f"plan/{seed}")
    sizes = {f"e{index}": rng.randint(1, 4) for index in range(rng.choice([1, 1, 2, 3]))}
    batch_size = rng.randint(max(sizes.values()), 10)
    schedule = Schedule(
        batch_size=batch_size,
        max_steps=rng.randint(2, 5),
        max_off_policy_steps=rng.choice([0, 0, 1, 1, 2, 8]),
        policy_timeout_s=3600.0,
    )
    return Plan(
        schedule,
        sizes,
        permits=rng.randint(max(sizes.values()), 3 * batch_size),
        failing=rng.choice([0.0, 0.0, 0.2]),
        alike=rng.choice([0.0, 0.3]),
        refused=rng.choice([0.0, 0.0, 0.3]),
        long_tail=rng.choice([0.0, 0.1]),
        stubborn=rng.choice([0.0, 0.5]),
        frozen=frozenset(name for name in sizes if rng.random() < 0.1),
        permits_change=rng.random() < 0.3,
        trainer_s=rng.choice([0.0, 0.3, 3.0]),
    )


class RefusedByWorld:
    """An admission gate whose answer depends on the group's number alone."""

    name = "refused_by_world"

    def __init__(self, share: float) -> None:
        self._share = share

    def admits(self, group: FinishedGroup) -> bool:
        return _draw("refused", group.opened.number) >= self._share


class SimulatedPolicy:
    """Stands for the watcher."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.update_seconds = 0.0
        self.observers: list[Callable[[], None]] = []

    def announce(self) -> None:
        for observer in self.observers:
            observer()


@dataclass
class World:
    """Runs a plan; `timing` says how long things take, and nothing else."""

    plan: Plan
    timing: int
    stop_after: int | None = None  # the loop is stopped some time after this batch
    restored: Mapping[str, Any] | None = None
    shipped: list[tuple[int, list[tuple[int, str, int]]]] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"timing/{self.timing}")
        step = int(self.restored["step"]) if self.restored else 0
        self.first_step = step + 1
        self.policy = SimulatedPolicy(step)
        self.concurrency = StaticConcurrency(self.plan.permits)
        self.running: dict[int, OpenGroup] = {}
        self.finished: dict[int, OpenGroup] = {}
        self.attempts: Counter[int] = Counter()
        self.seen: dict[int, OpenGroup] = {}  # every group that was ever dispatched, as last dispatched
        self.recorded: set[int] = set()  # groups that a batch accounts for
        self.dispatches: list[int] = []
        self.drawn: dict[str, int] = Counter()
        self.enough = asyncio.Event()
        self.new_batch = asyncio.Event()
        self.last_said = ""
        self.stale_since: dict[int, float] = {}
        self.faults: list[str] = []
        self._now = asyncio.get_running_loop().time

    async def run(self) -> World:
        """Run until the last batch, or until the loop is stopped."""
        sources = [self._source(name, size) for name, size in self.plan.group_sizes.items()]
        loop = self.orchestrator = self.make_loop(sources)
        if self.restored is not None:
            loop.restore(json.loads(json.dumps(self.restored)))
        companions = [asyncio.ensure_future(part) for part in (self._trainer(), self._mischief())]
        work = asyncio.ensure_future(self.work())
        stopped = asyncio.ensure_future(self.enough.wait())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.sleep(self.rng.expovariate(1.0))
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            everything = [*companions, work, stopped]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
        assert not self.running, "every group that was begun has ended"
        assert not self.faults, self.faults
        return self

    def make_loop(self, sources: list[Source]) -> Orchestrator:
        """Return the loop over these sources."""
        return Orchestrator(
            self.plan.schedule, sources, policy=self.policy, concurrency=self.concurrency, output=self, seed=5
        )

    async def work(self) -> None:
        """Do what is to be done."""
        await self.orchestrator.produce()

    # What the loop asks for

    def _source(self, name: str, size: int) -> Source:
        return Source(
            name,
            size,
            self._run_group,
            ShuffledSampler(EXAMPLES, seed=3),
            GroupMean(),
            ratio=1.0 + len(name) + size,
            frozen=name in self.plan.frozen,
            gates=[RefusedByWorld(self.plan.refused)],
        )

    async def _run_group(self, opened: OpenGroup) -> list[dict[str, Any]]:
        self._check_dispatch(opened)
        self.running[opened.number] = opened
        stubborn = self.rng.random() < self.plan.stubborn
        try:
            await asyncio.sleep(self._duration())
        except asyncio.CancelledError:
            if not stubborn:
                raise
            await asyncio.sleep(self.rng.random() * _STUBBORN_S)
            if self.rng.random() < 0.5:
                raise
            return self._rollouts(opened)  # an answer that nobody wants any more
        finally:
            del self.running[opened.number]
            since = self.stale_since.pop(opened.number, None)
            if since is not None and self._now() - since > _STUBBORN_S:
                self.faults.append(f"group {opened.number} ran on for {self._now() - since:.2f} s after it was too old")
        self.finished[opened.number] = opened
        return self._rollouts(opened)

    def _check_dispatch(self, opened: OpenGroup) -> None:
        number, before = opened.number, self.seen.get(opened.number)
        assert number not in self.running, f"group {number} runs twice at once"
        assert number not in self.finished, f"group {number} is run again although it has finished"
        in_flight = opened.size + sum(group.size for group in self.running.values())
        if not self.plan.permits_change and self.running:
            assert in_flight <= self.plan.permits, f"{in_flight} rollouts run, {self.plan.permits} may"
        assert opened.version == self.policy.version or self.policy.version - opened.version <= 1, (
            "opened under an old policy"
        )
        if before is not None:
            assert (before.source, before.example) == (opened.source, opened.example), f"group {number} changed"
        self.seen[number] = opened
        self.attempts[number] += 1
        self.dispatches.append(number)

    def _duration(self) -> float:
        slow = 30.0 if self.rng.random() < self.plan.long_tail else 1.0
        return slow * self.rng.expovariate(2.0)

    def _rollouts(self, opened: OpenGroup) -> list[dict[str, Any]]:
        failed = _draw("failed", opened.number) < self.plan.failing
        alike = _draw("alike", opened.number) < self.plan.alike
        return [a_rollout(opened, member, 1.0 if alike else float(member), failed) for member in range(opened.size)]

    # What happens beside it

    async def _trainer(self) -> None:
        last = self.plan.schedule.max_steps
        for step in range(self.first_step, last + 1):
            while len(self.shipped) < step - self.first_step + 1:
                self.new_batch.clear()
                await self.new_batch.wait()
            if step == self.plan.trainer_dies_after:
                return
            await asyncio.sleep(self.rng.expovariate(1.0) * self.plan.trainer_s)
            if self.rng.random() < 0.2 and len(self.shipped) > step - self.first_step + 1:
                continue  # the watcher loads the next version instead
            self.policy.version = step
            self.policy.announce()

    async def _mischief(self) -> None:
        for _ in range(200):
            await asyncio.sleep(self.rng.expovariate(0.3))
            if self.rng.random() < 0.5:
                self.policy.announce()  # nothing has changed
            elif self.plan.permits_change:
                largest = max(self.plan.group_sizes.values())
                self.concurrency.rollouts = self.rng.randint(largest, 2 * self.plan.permits)
                if self.rng.random() < 0.3:
                    self.orchestrator.dispatcher.shed(self.rng.randint(1, self.plan.permits))

    # What the loop gives

    def say(self, doing: str) -> None:
        self.last_said = doing

    def ship(self, cut: Cut, state: Mapping[str, Any], metrics: Mapping[str, float | int]) -> None:
        schedule = self.plan.schedule
        assert cut.step == self.first_step + len(self.shipped), "batches come in order"
        self._check_batch(cut)
        for group in cut.finished:
            number = group.opened.number
            assert number in self.finished, f"group {number} has not finished"
            assert number not in self.recorded, f"group {number} is in two batches"
            self.recorded.add(number)
        ahead = cut.step - 1 - self.policy.version
        assert ahead <= min(1, schedule.max_off_policy_steps), f"batch {cut.step} was shipped {ahead} ahead"
        self._check_state(cut.step, state)
        self.states[cut.step] = json.dumps(state)
        self.shipped.append(
            (cut.step, [(group.opened.number, group.opened.source, group.opened.example) for group in cut.groups])
        )
        for opened in self.running.values():
            if self._is_stale(opened, cut.step + 1):
                self.stale_since.setdefault(opened.number, self._now())
        self.new_batch.set()
        if self.stop_after is not None and cut.step >= self.stop_after:
            self.enough.set()

    def _check_batch(self, cut: Cut) -> None:
        sizes = [group.opened.size for group in cut.groups]
        wanted = self.plan.schedule.batch_size
        assert sum(sizes) >= wanted > sum(sizes[:-1]), f"batch {cut.step} has {sizes}, wanted are {wanted}"
        expected = []
        for group in cut.groups:
            opened = group.opened
            assert opened.frozen == (opened.source in self.plan.frozen)
            assert len(group.rollouts) == opened.size
            assert not self._is_stale(opened, cut.step), f"group {opened.number} is too old for batch {cut.step}"
            expected += [
                [opened.number, member]
                for member in range(opened.size)
                if opened.size > 1
                and _draw("alike", opened.number) >= self.plan.alike
                and 2 * member != opened.size - 1
            ]
        assert [sample.token_ids[:2] for sample in cut.samples] == expected, "the samples are those of the groups"

    def _is_stale(self, opened: OpenGroup, step: int) -> bool:
        return not opened.frozen and step - 1 - opened.version > self.plan.schedule.max_off_policy_steps

    def _check_state(self, step: int, state: Mapping[str, Any]) -> None:
        """Every group that was ever opened is in a batch, or dropped for its age, or owed: one of the three."""
        assert state["step"] == step
        owed = {entry["number"]: entry for entry in state["owed"]}
        assert len(owed) == len(state["owed"]), "no group is owed twice"
        before = {entry["number"] for entry in self.restored["owed"]} if self.restored else set()
        known = range(self.restored["opened"] + 1 if self.restored else 1, state["opened"] + 1)
        for number in [*sorted(before), *known]:
            opened = self.seen.get(number)
            dropped = opened is not None and number not in self.recorded and self._is_stale(opened, step + 1)
            fates = (number in self.recorded, dropped and number not in owed, number in owed)
            assert sum(fates) == 1, f"group {number} after batch {step}: (in a batch, dropped, owed) = {fates}"
            if opened is not None and number in owed:
                assert (owed[number]["source"], owed[number]["example"]) == (opened.source, opened.example)


def a_rollout(opened: OpenGroup, member: int, reward: float, failed: bool) -> dict[str, Any]:
    """Return a rollout whose tokens tell which it is."""
    tokens = {
        "prompt_ids": [opened.number, member], "completion_ids": [7], "completion_mask": [1],
        "completion_logprobs": [-1.0],
    }  # fmt: skip
    return {
        "example_id": opened.example,
        "reward": reward,
        "error": {"error": "boom"} if failed else None,
        "metrics": {},
        "trajectory": [{"tokens": tokens}],
    }


def _draw(what: str, number: int) -> float:
    return random.Random(f"{what}/{number}").random()
