"""The rules of the pools, simulated: a clock that is told the time, and sandboxes that are numbers."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from hub_server.sandbox_node.pool_plan import (
    FADES_IN_S,
    LINGERS_S,
    MOST_FAILURES,
    GiveUp,
    Hand,
    Make,
    PoolPlan,
    PoolSettings,
    Tell,
    Ticket,
)
from hub_server.sandbox_node.specification import Limits, Shape

HOST = Shape("host:latest")
OTHER = Shape("debian:12")
LARGE = Shape("host:latest", Limits(memory_bytes=4 * 1024**3))


@dataclass
class Simulation:
    """A node whose creations take `creation_s`; `run_until` lets time pass."""

    settings: PoolSettings
    creation_s: float = 0.04
    memory_for: int = 10**9
    fails: dict[Shape, int] = field(default_factory=dict)
    now: float = 0.0
    handed: dict[Ticket, tuple[float, int]] = field(default_factory=dict)
    told: dict[Ticket, float] = field(default_factory=dict)
    destroyed: list[int] = field(default_factory=list)
    made: list[Shape] = field(default_factory=list)
    most_total: int = 0
    most_making: int = 0

    def __post_init__(self) -> None:
        self.plan: PoolPlan[int] = PoolPlan(self.settings, has_memory=lambda: self.plan.total < self.memory_for)
        self._numbers, self._order = count(), count()
        self._events: list[tuple[float, int, str, object]] = []
        self.at(0.0, "tick", None)

    def at(self, time: float, kind: str, what: object) -> None:
        heapq.heappush(self._events, (time, next(self._order), kind, what))

    def ask(self, shape: Shape = HOST, owner: str = "") -> Ticket:
        ticket = self.plan.ask(shape, owner, self.now)
        self.advance()
        return ticket

    def advance(self) -> None:
        for decision in self.plan.decide(self.now):
            match decision:
                case Hand(ticket, item):
                    self.handed[ticket] = (self.now, item)
                case Make(shape):
                    self.at(self.now + self.creation_s, "made", shape)
                case GiveUp(item):
                    self.destroyed.append(item)
                    self.at(self.now + 0.002, "given up", None)
                case Tell(ticket, _):
                    self.told[ticket] = self.now
        self.most_total = max(self.most_total, self.plan.total)
        self.most_making = max(self.most_making, self.plan.making.total())

    def run_until(self, time: float) -> None:
        while self._events and self._events[0][0] <= time:
            self.now, _, kind, what = heapq.heappop(self._events)
            if kind == "made":
                assert isinstance(what, Shape)
                if self.fails.get(what, 0) > 0:
                    self.fails[what] -= 1
                    self.plan.not_made(what, RuntimeError("no"), self.now)
                else:
                    self.made.append(what)
                    self.plan.made(what, next(self._numbers), self.now)
            elif kind == "given up":
                self.plan.given_up()
            elif kind == "ended":
                self.plan.ended()
            elif kind == "ask":
                assert isinstance(what, Shape)
                self.ask(what)
            elif kind == "tick":
                self.at(self.now + 0.5, "tick", None)
            self.advance()
        self.now = time

    def waited(self, ticket: Ticket) -> float:
        return self.handed[ticket][0] - ticket.asked_at


def simulation(*, memory_for: int = 10**9, creation_s: float = 0.04, **settings: object) -> Simulation:
    return Simulation(PoolSettings(kept=(HOST,), **settings), creation_s, memory_for)  # type: ignore[arg-type]


def test_a_kept_shape_has_unused_sandboxes_before_anybody_asks() -> None:
    node = simulation(least_idle=3)
    node.run_until(1)
    assert len(node.plan.idle[HOST]) == 3
    ticket = node.ask()
    assert node.waited(ticket) == 0


def test_no_sandbox_is_handed_out_twice() -> None:
    node = simulation(least_idle=4)
    for number in range(500):
        node.at(number * 0.011, "ask", HOST)
    node.run_until(120)
    items = [item for _, item in node.handed.values()]
    assert len(items) == len(set(items)) == 256
    assert not set(items) & set(node.destroyed)


def test_pools_grow_with_demand_and_shrink_when_it_fades() -> None:
    node = simulation(least_idle=2, most_idle=24)
    for number in range(60):
        node.at(1 + number * 0.5, "ask", HOST)
        node.at(3 + number * 0.5, "ended", None)
    node.run_until(35)
    assert len(node.plan.idle[HOST]) == 24
    node.run_until(35 + 6 * FADES_IN_S + LINGERS_S)
    assert len(node.plan.idle[HOST]) == 2


def test_a_steady_demand_makes_no_more_than_it_takes() -> None:
    node = simulation(least_idle=2, most_idle=32)
    for number in range(1200):
        node.at(number * 0.25, "ask", HOST)
        node.at(number * 0.25 + 1, "ended", None)
    node.run_until(300)
    assert len(node.handed) == 1200
    assert len(node.made) <= 1200 + 32
    assert max(node.waited(ticket) for ticket in node.handed) < 0.1
    assert sorted(node.waited(ticket) for ticket in node.handed)[1000] == 0


def test_a_shape_asked_for_once_is_not_made_ahead() -> None:
    node = simulation(least_idle=2)
    node.run_until(1)
    node.ask(OTHER)
    node.run_until(60)
    assert node.made.count(OTHER) == 1


def test_all_pools_together_hold_no_more_than_they_may() -> None:
    node = simulation(least_idle=2, most_idle=6)
    shapes = [Shape(f"image:{number}") for number in range(8)]
    for number in range(400):
        node.at(number * 0.05, "ask", shapes[number % len(shapes)])
        node.at(number * 0.05 + 1, "ended", None)
    while node.now < 60:
        node.run_until(node.now + 0.05)
        assert node.plan.idle_count <= 6 + 2  # and what was made for one who left, or just comes


def test_two_shapes_never_share_sandboxes() -> None:
    node = simulation(least_idle=4)
    node.run_until(1)
    ticket = node.ask(LARGE)
    assert ticket not in node.handed
    node.run_until(2)
    assert node.made[node.handed[ticket][1]] == LARGE


def test_a_burst_of_a_thousand_waits_and_none_fails() -> None:
    node = simulation(most_sandboxes=64, creations_at_once=2)
    tickets = [node.ask() for _ in range(1000)]
    for step in range(100_000):
        done = [ticket for ticket in tickets if ticket in node.handed]
        if len(done) == 1000:
            break
        while node.plan.used > 32:  # their users come to an end
            node.plan.ended()
        node.run_until(step * 0.1)
    assert len(node.handed) == 1000
    assert not node.told
    assert node.most_total <= 64
    assert node.most_making <= 2


def test_the_first_asked_for_is_the_first_served() -> None:
    node = simulation(least_idle=0)
    tickets = [node.ask() for _ in range(20)]
    node.run_until(5)
    assert [node.handed[ticket][1] for ticket in tickets] == list(range(20))


def test_owners_take_turns() -> None:
    node = simulation(least_idle=0, creations_at_once=1)
    many = [node.ask(owner="greedy") for _ in range(100)]
    one = node.ask(owner="modest")
    node.run_until(10)
    assert sum(node.handed[ticket][1] < node.handed[one][1] for ticket in many) <= 2


def test_a_full_node_gives_up_unused_sandboxes_of_other_shapes() -> None:
    node = simulation(least_idle=4, most_sandboxes=4)
    node.run_until(1)
    assert node.plan.total == 4
    ticket = node.ask(OTHER)
    node.run_until(2)
    assert ticket in node.handed
    assert node.most_total == 4
    assert len(node.destroyed) == 1


def test_nobody_gets_more_than_the_node_may_have_until_one_ends() -> None:
    node = simulation(least_idle=1, most_sandboxes=3)
    tickets = [node.ask() for _ in range(5)]
    node.run_until(10)
    assert [ticket in node.handed for ticket in tickets] == [True, True, True, False, False]
    node.plan.ended()
    node.run_until(11)
    assert tickets[3] in node.handed


def test_little_memory_lets_callers_wait_instead_of_failing() -> None:
    node = simulation(least_idle=1, memory_for=2)
    tickets = [node.ask() for _ in range(3)]
    node.run_until(10)
    assert len(node.handed) == 2
    node.memory_for = 5
    node.run_until(12)
    assert all(ticket in node.handed for ticket in tickets)


def test_a_caller_that_leaves_gets_nothing_and_holds_up_nobody() -> None:
    node = simulation(least_idle=0, creations_at_once=1)
    first, second = node.ask(), node.ask()
    node.plan.leave(first)
    node.run_until(1)
    assert first not in node.handed
    assert node.waited(second) == pytest.approx(0.04)


def test_a_failure_is_tried_again_before_anybody_hears_of_it() -> None:
    node = simulation(least_idle=0)
    node.fails[HOST] = MOST_FAILURES - 1
    ticket = node.ask()
    node.run_until(60)
    assert ticket in node.handed
    assert ticket not in node.told


def test_callers_of_a_shape_that_cannot_be_made_are_told_and_others_are_not() -> None:
    node = simulation(least_idle=0)
    node.fails[OTHER] = 10**6
    vain, fine = node.ask(OTHER), node.ask(HOST)
    node.run_until(60)
    assert vain in node.told
    assert fine in node.handed
    assert node.told[vain] < 30
    node.fails.clear()
    again = node.ask(OTHER)
    node.run_until(120)
    assert again in node.handed


def test_unused_sandboxes_that_died_are_not_handed_out() -> None:
    node = simulation(least_idle=2)
    dead = {0}
    node.plan.is_usable = lambda shape, item: item not in dead
    node.run_until(1)
    tickets = [node.ask() for _ in range(3)]
    node.run_until(2)
    assert all(node.handed[ticket][1] not in dead for ticket in tickets)
    assert 0 in node.destroyed


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_add_up_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    node = simulation(least_idle=3, most_sandboxes=20, creations_at_once=3)
    waiting: list[Ticket] = []
    for step in range(2000):
        node.fails[OTHER] = chance.choice([0, 0, 1])
        match chance.randrange(4):
            case 0:
                waiting.append(node.ask(chance.choice([HOST, OTHER, LARGE]), chance.choice("abc")))
            case 1 if waiting:
                ticket = waiting.pop(chance.randrange(len(waiting)))
                if ticket not in node.handed:
                    node.plan.leave(ticket)
            case 2 if node.plan.used:
                node.plan.ended()
            case _:
                node.run_until(node.now + chance.random())
        node.advance()
        assert 0 <= node.plan.total <= 20, step
        assert node.plan.used >= 0
        assert node.plan.making.total() <= 3
    while node.plan.used:
        node.plan.ended()
    assert node.now > 100
