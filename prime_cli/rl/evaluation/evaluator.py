"""Decides what is to be evaluated when, and runs it beside the training, with permits that both share.

An evaluation takes permits before the training does, so that it is over under few versions of the policy; of what is in
flight nothing is cancelled for it, and one group of the training may always run. Its own rollouts are never cancelled.
One set is evaluated once at a time: if it takes longer than its interval, the newest that is due comes next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prime_cli.core.errors import PrimeError
from prime_cli.rl.evaluation.figures import eval_figures

Row = Mapping[str, Any]
Rollouts = list[dict[str, Any]]

RunRollouts = Callable[[Row, Sequence[int]], Awaitable[Rollouts]]
"""Runs the rollouts of an example that have these numbers among its own; errors are data in the rollouts."""


class Policy(Protocol):
    """What an evaluation needs to know of the policy."""

    version: int
    observers: list[Callable[[], None]]
    """Called whenever `version` has risen."""


class Output(Protocol):
    """Where the rollouts and the figures of an evaluation go."""

    def begin(self, name: str, step: int) -> None:
        """Hear that the set `name` is evaluated now, as of `step`."""

    def keep(self, name: str, step: int, rollouts: Sequence[Mapping[str, Any]]) -> None:
        """Keep rollouts that have just ended."""

    def record(self, name: str, step: int, figures: Mapping[str, float | int]) -> None:
        """Keep what came out."""


@dataclass(frozen=True)
class EvalSet:
    """Examples that are evaluated together.

    Attributes:
        name: as in the names of its figures: `eval/ENVIRONMENT`, or `val/ENVIRONMENT`.
        whole_groups: the rollouts of an example are scored together, so they are run together.
        skip_first_step: the untrained policy is not evaluated.
    """

    name: str
    examples: Sequence[Row]
    rollouts_per_example: int
    interval: int
    run: RunRollouts
    whole_groups: bool = False
    skip_first_step: bool = False


@dataclass(frozen=True)
class Timetable:
    """When a set is due: before the first step, after every `interval` steps, and after the last."""

    interval: int
    max_steps: int
    skip_first_step: bool = False

    def newest_due(self, version: int) -> int | None:
        """Return the newest step that is to be evaluated once the policy has this version."""
        if version >= self.max_steps:
            return self.max_steps
        step = version // self.interval * self.interval
        return None if step == 0 and self.skip_first_step else step


@dataclass
class _Evaluation:
    """One set as of one step, under way."""

    step: int
    waiting: deque[tuple[Row, Sequence[int]]]
    began: float
    first_version: int
    in_flight: int = 0
    rollouts: Rollouts = field(default_factory=list)
    last_version: int = 0


class Evaluator:
    """Runs evaluations as they fall due.

    Args:
        limit: rollouts that may be in flight in all.
        others: rollouts of the training in flight now.
        max_steps: the last version of the policy, which is evaluated in any case.
        timeout_s: how long `finish` waits for anything to happen.
    """

    def __init__(
        self,
        sets: Sequence[EvalSet],
        *,
        policy: Policy,
        output: Output,
        limit: Callable[[], int],
        others: Callable[[], int] = lambda: 0,
        max_steps: int,
        timeout_s: float = 1800,
    ) -> None:
        self._sets = {one.name: one for one in sets}
        self._timetables = {one.name: Timetable(one.interval, max_steps, one.skip_first_step) for one in sets}
        self._policy = policy
        self._output = output
        self._limit = limit
        self.others = others
        self._max_steps = max_steps
        self._timeout_s = timeout_s
        self._done: dict[str, int] = dict.fromkeys(self._sets, -1)
        self._going_on: dict[str, _Evaluation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._woken = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.observers: list[Callable[[], None]] = [self._woken.set]
        """Called whenever rollouts have ended."""
        policy.observers.append(self._woken.set)

    @property
    def in_flight(self) -> int:
        """Rollouts that run now."""
        return sum(evaluation.in_flight for evaluation in self._going_on.values())

    @property
    def claims(self) -> int:
        """Permits that are not for the training: of what runs, and of what waits to run."""
        waiting = (len(numbers) for one in self._going_on.values() for _, numbers in one.waiting)
        return self.in_flight + sum(waiting)

    def go_on_after(self, version: int, evaluated: Mapping[str, Iterable[int]]) -> None:
        """Take up a run at this version of its policy: what was evaluated is not evaluated again.

        An evaluation of this very version that was not finished is made again; an older one can no longer be.
        """
        for name, timetable in self._timetables.items():
            due = timetable.newest_due(version)
            missed = due is not None and due == version and version not in set(evaluated.get(name, ()))
            self._done[name] = version - 1 if missed else version

    def advance(self) -> None:
        """Begin what is due, start what there is room for; to be called whenever something has changed.

        Raises:
            Exception: whatever a rollout raised that is no error of its own.
        """
        if self._failure is not None:
            raise self._failure
        for name, timetable in self._timetables.items():
            due = timetable.newest_due(self._policy.version)
            if due is not None and due > self._done[name] and name not in self._going_on:
                self._begin(name, due)
        self._start_waiting()

    async def finish(self, say: Callable[[str], None], *, version: int | None = None) -> None:
        """Wait until the policy has this version, the last one unless given, and is evaluated.

        Raises:
            PrimeError: nothing happened for `timeout_s`.
        """
        awaited = self._max_steps if version is None else version
        while True:
            self.advance()
            if not self._going_on and (not self._sets or self._policy.version >= awaited):
                return
            what = f"policy {awaited}, to evaluate it"
            if self._going_on:
                what = f"{self.claims} rollouts of the evaluation {', '.join(self._going_on)}"
            say(f"waiting for {what}")
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._woken.wait()
            except TimeoutError:
                raise PrimeError(
                    f"the run waited {self._timeout_s:.0f} s for {what} and nothing came",
                    hint="look at the logs of the environments, the trainer and the inference server",
                ) from None
            self._woken.clear()

    async def close(self) -> None:
        """Cancel what still runs; only a run that has failed has such."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, name: str, step: int) -> None:
        one, version = self._sets[name], self._policy.version
        numbers = range(one.rollouts_per_example)
        waiting: deque[tuple[Row, Sequence[int]]] = deque()
        for example in one.examples:
            waiting.extend([(example, numbers)] if one.whole_groups else [(example, [number]) for number in numbers])
        self._done[name] = step
        self._going_on[name] = _Evaluation(step, waiting, self._clock(), version, last_version=version)
        self._output.begin(name, step)

    def _start_waiting(self) -> None:
        """Start rollouts, of the sets in turns, as long as there are permits."""
        while waiting := [name for name, evaluation in self._going_on.items() if evaluation.waiting]:
            for name in waiting:
                example, numbers = self._going_on[name].waiting[0]
                taken = self.in_flight
                if taken and self.others() + taken + len(numbers) > self._limit():
                    return
                self._going_on[name].waiting.popleft()
                self._going_on[name].in_flight += len(numbers)
                task = asyncio.ensure_future(self._run(name, example, numbers))
                self._tasks.add(task)
                task.add_done_callback(self._note_end)

    async def _run(self, name: str, example: Row, numbers: Sequence[int]) -> None:
        evaluation = self._going_on[name]
        rollouts = await self._sets[name].run(example, numbers)
        for rollout in rollouts:
            rollout["policy_version"] = self._policy.version
        evaluation.in_flight -= len(numbers)
        evaluation.rollouts += rollouts
        evaluation.last_version = self._policy.version
        self._output.keep(name, evaluation.step, rollouts)
        if not evaluation.in_flight and not evaluation.waiting:
            self._end(name)

    def _end(self, name: str) -> None:
        evaluation = self._going_on.pop(name)
        figures = eval_figures(evaluation.rollouts) | {
            "policy_version/start": evaluation.first_version,
            "policy_version/end": evaluation.last_version,
            "time": self._clock() - evaluation.began,
        }
        self._output.record(name, evaluation.step, figures)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
        for observer in self.observers:
            observer()
