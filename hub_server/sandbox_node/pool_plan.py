"""Which sandboxes are made, handed out and given up when: the rules of the pools, without processes or waiting.

A sandbox is used once. Those of one shape that nobody has used yet are alike, so some are made ahead: as many as were
taken of late, with a share that fades by half every `FADES_IN_S`. Whoever asks gets one of these, or the next that is
made. When the node is full, callers wait; owners take turns, and among the sandboxes of one owner the first asked for
is the first made. Nobody fails because others want much.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hub_server.sandbox_node.specification import Shape

FADES_IN_S = 30.0
LINGERS_S = 60.0  # an unused sandbox beyond what is wanted is kept this long, since demand comes in waves
PAUSE_AFTER_FAILURE_S, LONGEST_PAUSE_S = 0.5, 30.0
MOST_FAILURES = 4  # in a row, of one shape: then those who wait are told

Item = TypeVar("Item")


@dataclass(frozen=True)
class PoolSettings:
    """How large pools may be: `most_idle` is for all of them together.

    `kept` are shapes that always have some unused sandboxes.
    """

    most_sandboxes: int = 256
    creations_at_once: int = 2
    least_idle: int = 2
    most_idle: int = 32
    kept: tuple[Shape, ...] = ()


@dataclass
class Demand:
    """How much was taken of late: each take counts one, and fades."""

    taken: float = 0.0
    at: float = 0.0

    def now(self, now: float) -> float:
        """Return what has not faded yet."""
        share: float = 0.5 ** ((now - self.at) / FADES_IN_S)
        return self.taken * share

    def take(self, now: float) -> None:
        """Count one more."""
        self.taken, self.at = self.now(now) + 1, now


@dataclass(eq=False)
class Ticket:
    """Somebody who waits for a sandbox."""

    shape: Shape
    owner: str
    asked_at: float


@dataclass
class Idle(Generic[Item]):
    """A sandbox that nobody has used."""

    item: Item
    since: float


@dataclass(frozen=True)
class Hand(Generic[Item]):
    """Give this sandbox to this caller."""

    ticket: Ticket
    item: Item


@dataclass(frozen=True)
class Make:
    """Make a sandbox of this shape."""

    shape: Shape


@dataclass(frozen=True)
class GiveUp(Generic[Item]):
    """Destroy a sandbox that nobody has used."""

    item: Item


@dataclass(frozen=True)
class Tell:
    """Tell this caller that no sandbox of its shape can be made."""

    ticket: Ticket
    error: Exception


Decision = Hand[Item] | Make | GiveUp[Item] | Tell


class Queue:
    """Those who wait: one line for each owner, and the owners take turns."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[Ticket]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, ticket: Ticket) -> None:
        """Let a caller wait behind those of its owner."""
        self._lines.setdefault(ticket.owner, deque()).append(ticket)

    def remove(self, ticket: Ticket) -> bool:
        """Let a caller go; False when it does not wait."""
        line = self._lines.get(ticket.owner, deque())
        if ticket not in line:
            return False
        line.remove(ticket)
        if not line:
            del self._lines[ticket.owner]
        return True

    def served(self, ticket: Ticket) -> None:
        """Take a caller out that gets a sandbox: its owner's next turn comes after the others'."""
        if self.remove(ticket) and ticket.owner in self._lines:
            self._lines.move_to_end(ticket.owner)

    def in_turn(self) -> Iterator[Ticket]:
        """Yield all who wait, in the order in which they would be served."""
        lines = [iter(line) for line in self._lines.values()]
        while lines:
            remaining = []
            for line in lines:
                if (ticket := next(line, None)) is not None:
                    yield ticket
                    remaining.append(line)
            lines = remaining


@dataclass
class _Failures:
    count: int = 0
    not_before: float = 0.0
    error: Exception | None = None


@dataclass
class PoolPlan(Generic[Item]):
    """The state of all pools of a node. Who uses it tells what happened, and does what `decide` says."""

    settings: PoolSettings
    is_usable: Callable[[Shape, Item], bool] = lambda shape, item: True
    has_memory: Callable[[], bool] = lambda: True
    used: int = 0  # handed out, and not ended yet
    ending: int = 0  # given up, and not gone yet
    making: Counter[Shape] = field(default_factory=Counter)
    idle: dict[Shape, deque[Idle[Item]]] = field(default_factory=dict)
    demand: dict[Shape, Demand] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    _failures: dict[Shape, _Failures] = field(default_factory=dict)

    @property
    def idle_count(self) -> int:
        """How many sandboxes wait for somebody to use them."""
        return sum(map(len, self.idle.values()))

    @property
    def total(self) -> int:
        """How many sandboxes there are, with those that come and go."""
        return self.used + self.ending + self.making.total() + self.idle_count

    def ask(self, shape: Shape, owner: str, now: float) -> Ticket:
        """Let somebody wait for a sandbox."""
        self.demand.setdefault(shape, Demand(at=now)).take(now)
        ticket = Ticket(shape, owner, now)
        self.queue.add(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Forget somebody who does not wait any more."""
        self.queue.remove(ticket)

    def made(self, shape: Shape, item: Item, now: float) -> None:
        """Take in a new sandbox."""
        self._less_making(shape)
        self._failures.pop(shape, None)
        self.idle.setdefault(shape, deque()).append(Idle(item, now))

    def not_made(self, shape: Shape, error: Exception, now: float, *, is_final: bool = False) -> None:
        """Take in that a sandbox could not be made; `is_final` when another attempt would be as vain."""
        self._less_making(shape)
        failures = self._failures.setdefault(shape, _Failures())
        failures.count = max(failures.count + 1, MOST_FAILURES if is_final else 0)
        failures.error = error
        failures.not_before = now + min(LONGEST_PAUSE_S, PAUSE_AFTER_FAILURE_S * 2 ** (failures.count - 1))

    def not_now(self, shape: Shape, now: float) -> None:
        """Take in that there was no room for another sandbox: nobody's failure, only a pause."""
        self._less_making(shape)
        self._failures.setdefault(shape, _Failures()).not_before = now + PAUSE_AFTER_FAILURE_S

    def ended(self) -> None:
        """Take in that a sandbox which was handed out is gone."""
        self.used -= 1

    def given_up(self) -> None:
        """Take in that a sandbox which was given up is gone."""
        self.ending -= 1

    def wanted(self, shape: Shape, now: float) -> int:
        """Return how many unused sandboxes of a shape there should be."""
        least = self.settings.least_idle if shape in self.settings.kept else 0
        demand = self.demand.get(shape)
        return min(self.settings.most_idle, least + int(demand.now(now) if demand else 0))

    def next_change(self, now: float) -> float | None:
        """Return when to decide again though nothing happened; None when only an event can change anything."""
        pauses = [failures.not_before for failures in self._failures.values() if failures.not_before > now]
        return min(pauses, default=None)

    def decide(self, now: float) -> list[Decision[Item]]:
        """Return what is to be done now. All of it counts as under way from here on."""
        decisions: list[Decision[Item]] = []
        decisions += self._drop_unusable()
        decisions += self._serve()
        decisions += self._tell(now)
        decisions += self._make_for_waiting(now)
        if not len(self.queue):
            decisions += self._make_ahead(now)
            decisions += self._drop_surplus(now)
        return decisions

    def give_up_all(self) -> list[Decision[Item]]:
        """Give up all unused sandboxes, as at the end of the node."""
        return [self._give_up(shape, 0) for shape in list(self.idle) for _ in range(len(self.idle[shape]))]

    def _drop_unusable(self) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        for shape, line in list(self.idle.items()):
            for position in reversed(range(len(line))):
                if not self.is_usable(shape, line[position].item):
                    decisions.append(self._give_up(shape, position))
        return decisions

    def _serve(self) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        while self.idle_count and (ticket := next((t for t in self.queue.in_turn() if self.idle.get(t.shape)), None)):
            line = self.idle[ticket.shape]
            item = line.popleft().item
            if not line:
                del self.idle[ticket.shape]
            self.queue.served(ticket)
            self.used += 1
            decisions.append(Hand(ticket, item))
        return decisions

    def _tell(self, now: float) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        for shape, failures in list(self._failures.items()):
            if failures.count < MOST_FAILURES or failures.error is None:
                continue
            for ticket in [ticket for ticket in self.queue.in_turn() if ticket.shape == shape]:
                self.queue.remove(ticket)
                decisions.append(Tell(ticket, failures.error))
            # Nothing of it is made ahead before its pause is over; who asks again has it tried again.
            self.demand.pop(shape, None)
            failures.count = MOST_FAILURES - 1
        return decisions

    def _make_for_waiting(self, now: float) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        coming = Counter(self.making)
        for ticket in self.queue.in_turn():
            if coming[ticket.shape] > 0:
                coming[ticket.shape] -= 1
                continue
            if self.making.total() >= self.settings.creations_at_once:
                break
            if self._is_paused(ticket.shape, now):
                continue
            if not self._has_room():
                if (evicted := self._evict(ticket.shape)) is not None:
                    decisions.append(evicted)
                break
            decisions.append(self._make(ticket.shape))
        return decisions

    def _make_ahead(self, now: float) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        settings = self.settings
        while (
            self.making.total() < settings.creations_at_once
            and self.idle_count + self.making.total() < settings.most_idle
            and self._has_room()
        ):
            lacking = {
                shape: (len(self.idle.get(shape, ())) + self.making[shape]) / wanted
                for shape in {*settings.kept, *self.demand}
                if (wanted := self.wanted(shape, now)) and not self._is_paused(shape, now)
            }
            shape = min(lacking, key=lambda shape: lacking[shape], default=None)
            if shape is None or lacking[shape] >= 1:
                break
            decisions.append(self._make(shape))
        return decisions

    def _drop_surplus(self, now: float) -> list[Decision[Item]]:
        decisions: list[Decision[Item]] = []
        for shape, line in list(self.idle.items()):
            wanted = self.wanted(shape, now)
            while len(line) > wanted and now - line[0].since >= LINGERS_S:
                decisions.append(self._give_up(shape, 0))
        for shape in [shape for shape, demand in self.demand.items() if demand.now(now) < 0.1]:
            del self.demand[shape]
        return decisions

    def _evict(self, instead_of: Shape) -> GiveUp[Item] | None:
        """Give up an unused sandbox of another shape, of that with the most; none while one is being given up."""
        others: Mapping[Shape, int] = {shape: len(line) for shape, line in self.idle.items() if shape != instead_of}
        if self.ending or not others:
            return None
        return self._give_up(max(others, key=lambda shape: others[shape]), 0)

    def _has_room(self) -> bool:
        return self.total < self.settings.most_sandboxes and self.has_memory()

    def _is_paused(self, shape: Shape, now: float) -> bool:
        return shape in self._failures and self._failures[shape].not_before > now

    def _make(self, shape: Shape) -> Make:
        self.making[shape] += 1
        return Make(shape)

    def _give_up(self, shape: Shape, position: int) -> GiveUp[Item]:
        line = self.idle[shape]
        item = line[position].item
        del line[position]
        if not line:
            del self.idle[shape]
        self.ending += 1
        return GiveUp(item)

    def _less_making(self, shape: Shape) -> None:
        self.making[shape] -= 1
        if self.making[shape] <= 0:
            del self.making[shape]
