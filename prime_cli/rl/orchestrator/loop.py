"""The loop of the orchestrator: keep groups in flight, take finished ones, ship batches, never wait without a name.

    chooser -> source -> dispatcher -> sink -> output
     which      which     rollouts     what     batches for
     one        example   in flight    joins    the trainer

Groups are opened while the gate and the permits allow; a batch is shipped when it is full and the trainer is not too
far behind. The moment a batch is cut, groups that are now too old are cancelled, so that they leave the inference
server before the next weights come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prime_cli.core.errors import PrimeError
from prime_cli.rl.orchestrator.chooser import SourceChooser
from prime_cli.rl.orchestrator.curriculum import Concurrency, Filter
from prime_cli.rl.orchestrator.dispatcher import Cancelled, Dispatcher
from prime_cli.rl.orchestrator.gate import StalenessGate
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup
from prime_cli.rl.orchestrator.sink import Cut, Sink
from prime_cli.rl.orchestrator.sources import Source


class Policy(Protocol):
    """What the loop needs to know of the policy that the server samples with."""

    version: int
    update_seconds: float
    observers: list[Callable[[], None]]
    """Called whenever `version` has risen."""


class Output(Protocol):
    """Where batches go, and where the loop says what it is doing."""

    def ship(self, cut: Cut, state: Mapping[str, Any], metrics: Mapping[str, float | int]) -> None:
        """Hand over a batch, with the state of the orchestrator at its cutting."""

    def say(self, doing: str) -> None:
        """Record what the loop does, or waits for."""


@dataclass(frozen=True)
class Schedule:
    """What bounds the loop: see the configuration's keys of the same names."""

    batch_size: int
    max_steps: int
    max_off_policy_steps: int
    policy_timeout_s: float

    @property
    def gate(self) -> StalenessGate:
        """How far generation may run ahead."""
        return StalenessGate(self.batch_size, self.max_off_policy_steps, self.max_steps)

    @property
    def is_synchronous(self) -> bool:
        """Whether rollouts and training take turns; such a run does not depend on which group was quicker."""
        return self.max_off_policy_steps == 0


class Orchestrator:
    """Produces the batches of a run up to `max_steps`.

    Args:
        sources: the environments.
        policy: version of the weights that the server samples with.
        concurrency: how many rollouts may be in flight.
        output: takes the batches.
        before_opening: called whenever groups may be opened; what it starts takes its permits first.
    """

    def __init__(
        self,
        schedule: Schedule,
        sources: Sequence[Source],
        *,
        policy: Policy,
        concurrency: Concurrency,
        output: Output,
        seed: int = 0,
        pre_batch_filters: Sequence[Filter] = (),
        post_batch_filters: Sequence[Filter] = (),
        before_opening: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_opening = before_opening
        self._schedule = schedule
        self._sources = {source.name: source for source in sources}
        self._policy = policy
        self._output = output
        self._gate = schedule.gate
        self._chooser = SourceChooser({source.name: source.ratio for source in sources}, seed)
        self._largest = max(source.group_size for source in sources)
        self._sink = Sink(
            self._sources, self._gate, pre_batch_filters=pre_batch_filters, post_batch_filters=post_batch_filters
        )
        self._concurrency = concurrency
        self._woken = asyncio.Event()  # a group has ended, or the policy has changed
        policy.observers.append(self._woken.set)
        self.dispatcher = Dispatcher(
            self._generate, self._teach, concurrency, self._woken.set, in_order=schedule.is_synchronous
        )
        self._opened = 0
        self._owed: deque[OpenGroup] = deque()  # to be opened again before any new one
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._batch_began = self._clock()
        self._held_s = 0.0

    def wake(self) -> None:
        """Let the loop look again at what it may do."""
        self._woken.set()

    async def produce(self) -> None:
        """Run until the last batch is handed over.

        Raises:
            PrimeError: nothing comes of the rollouts, or a new policy or a rollout does not come in time.
        """
        try:
            self._open_groups()
            while self._sink.step <= self._schedule.max_steps:
                await self._wait()
                # One group at a time, so that what is opened next does not depend on how many ended at once.
                for outcome in self.dispatcher.outcomes():
                    self._take(outcome)
                    self._ship_if_due()
                    self._open_groups()
                self._ship_if_due()
                self._open_groups()
        finally:
            await self.dispatcher.close()
        self._output.say("done")

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as of now: JSON.

        Groups that were opened and are in no batch are named, to be opened again under their numbers.
        """
        outstanding = [*self.dispatcher.wanted, *(group.opened for group in self._sink.pending), *self._owed]
        return {
            "step": self._sink.step - 1,
            "opened": self._opened,
            "chooser": self._chooser.state(),
            "sources": {name: source.state() for name, source in self._sources.items()},
            "owed": [
                {"number": group.number, "source": group.source, "example": group.example}
                for group in sorted(outstanding, key=lambda group: group.number)
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the batch that `state` was taken at.

        Raises:
            PrimeError: the run had other environments.
        """
        if set(state["sources"]) != set(self._sources):
            raise PrimeError(
                f"the run has the environments {', '.join(self._sources)}, and its checkpoint is of one with "
                f"{', '.join(state['sources'])}"
            )
        self._sink.start_after(int(state["step"]))
        self._opened = int(state["opened"])
        self._chooser.restore(state["chooser"])
        for name, source in self._sources.items():
            source.restore(state["sources"][name])
        self._owed.extend(
            self._group(int(entry["number"]), self._sources[entry["source"]], int(entry["example"]))
            for entry in state["owed"]
        )

    # What is opened

    @property
    def _outstanding(self) -> int:
        return self.dispatcher.rollouts_in_flight + self._sink.rollouts

    def _open_groups(self) -> None:
        self._before_opening()
        while self.dispatcher.has_room_for(self._largest) and self._gate.may_open(
            step=self._sink.step, outstanding=self._outstanding, version=self._policy.version
        ):
            self.dispatcher.dispatch(self._next_group())

    def _next_group(self) -> OpenGroup:
        if self._owed:
            again = self._owed.popleft()
            return self._group(again.number, self._sources[again.source], again.example)
        source = self._sources[self._chooser.next()]
        self._opened += 1
        return self._group(self._opened, source, source.sampler.next())

    def _group(self, number: int, source: Source, example: int) -> OpenGroup:
        step = self._gate.joins(self._sink.step, self._outstanding)
        return OpenGroup(
            number, source.name, example, source.group_size, self._policy.version, step, source.temperature(step),
            source.frozen,
        )  # fmt: skip

    async def _generate(self, opened: OpenGroup) -> FinishedGroup:
        return FinishedGroup(opened, await self._sources[opened.source].run_group(opened))

    async def _teach(self, group: FinishedGroup) -> None:
        if group.clean:
            algorithm = self._sources[group.opened.source].algorithm
            group.samples = await algorithm.samples(group.clean, temperature=group.opened.temperature)

    # What came back

    def _take(self, outcome: FinishedGroup | Cancelled) -> None:
        if isinstance(outcome, FinishedGroup):
            self._sink.take(outcome)
        elif outcome.reopen:
            self._owed.append(outcome.opened)
        else:
            self._sink.note_cancelled()

    def _ship_if_due(self) -> None:
        while (
            self._sink.is_full
            and self._sink.step <= self._schedule.max_steps
            and self._gate.may_ship(step=self._sink.step, version=self._policy.version)
        ):
            self._output.say(f"packing batch {self._sink.step}")
            cut = self._sink.cut()
            for opened in self.dispatcher.groups:
                if self._sink.is_stale(opened):
                    self.dispatcher.cancel(opened.number)
            self._output.ship(cut, self.state(), self._metrics(cut))
            self._batch_began, self._held_s = self._clock(), 0.0

    def _metrics(self, cut: Cut) -> dict[str, float | int]:
        elapsed = self._clock() - self._batch_began
        finished = sum(len(group.rollouts) for group in cut.finished)
        values = {f"curriculum/{name}/{key}": value for name, source in self._sources.items()
                  for key, value in source.sampler.metrics().items()}  # fmt: skip
        return (
            values
            | self._concurrency.metrics()
            | {
                "time/collect": elapsed,
                "time/wait_for_policy": self._held_s,
                "time/update_weights": self._policy.update_seconds,
                "perf/rollouts_per_second": finished / elapsed if elapsed else 0.0,
                "dispatcher/in_flight": self.dispatcher.rollouts_in_flight,
            }
        )

    # What is waited for

    async def _wait(self) -> None:
        """Wait until a group has ended or the policy has changed."""
        if self._woken.is_set():
            self._woken.clear()
            return
        what, held = self._waits_for()
        self._output.say(f"waiting for {what}")
        started = self._clock()
        timeout_s = self._schedule.policy_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            raise PrimeError(
                f"the orchestrator waited {timeout_s:.0f} s for {what} and nothing came; "
                f"{self.dispatcher.rollouts_in_flight} rollouts are in flight",
                hint="look at the logs of the trainer and the inference server",
            ) from None
        self._woken.clear()
        if held:
            self._held_s += self._clock() - started

    def _waits_for(self) -> tuple[str, bool]:
        """Return what the loop waits for, and whether that is the trainer."""
        step, version = self._sink.step, self._policy.version
        on_hold = self._sink.is_full and not self._gate.may_ship(step=step, version=version)
        if on_hold or not self.dispatcher.groups:
            return f"policy {version + 1}", True
        return f"rollouts of batch {step}", False
