"""The loop of the orchestrator: keep groups in flight, take finished ones, cut batches, never wait without a name."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from prime_cli.core.errors import PrimeError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.orchestrator.algorithms import Algorithm
from prime_cli.rl.orchestrator.gate import StalenessGate
from prime_cli.rl.orchestrator.groups import FinishedGroup, error_counts, rollout_metrics, stored_rollout
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.transport import Batch, Sample, write_batch

_HOPELESS_BATCHES = 2

RunGroup = Callable[[int], Awaitable[list[dict[str, Any]]]]
"""Runs one group of rollouts for the example with this index and returns them; errors are data in the rollouts."""


class Policy(Protocol):
    """What the loop needs to know of the policy that the server samples with."""

    version: int
    changed: asyncio.Event
    update_seconds: float


@dataclass
class _Step:
    """What accumulates until the next batch is cut."""

    groups: list[FinishedGroup] = field(default_factory=list)
    stale_groups: int = 0
    started: float = field(default_factory=time.perf_counter)
    held_s: float = 0.0


class Orchestrator:
    """Produces the batches 1 to `max_steps` of a run.

    Args:
        run_group: generates and scores the rollouts of one example.
        policy: version of the weights that the server samples with.
        examples: indices of the examples to open, in order.
        algorithm: turns the rollouts of a group into samples.
    """

    def __init__(
        self,
        config: RLConfig,
        run: RunDirectory,
        *,
        run_group: RunGroup,
        policy: Policy,
        examples: Iterator[int],
        algorithm: Algorithm,
    ) -> None:
        self._config = config
        self._run = run
        self._run_group = run_group
        self._policy = policy
        self._examples = examples
        self._algorithm = algorithm
        self._gate = StalenessGate(config.groups_per_batch, config.orchestrator.max_off_policy_steps, config.max_steps)
        self._inflight: set[asyncio.Task[FinishedGroup]] = set()
        self._step = 1
        self._pending = _Step()
        self._failed_in_a_row = 0

    async def produce(self) -> None:
        """Run until the last batch is handed over.

        Raises:
            PrimeError: every rollout fails, or a new policy does not come within `policy_timeout_s`.
        """
        try:
            while self._step <= self._config.max_steps:
                self._open_groups()
                await self._wait()
                self._collect()
                if len(self._pending.groups) >= self._config.groups_per_batch:
                    self._drop_stale()
                if len(self._pending.groups) >= self._config.groups_per_batch:
                    self._cut_batch()
        finally:
            for task in self._inflight:
                task.cancel()
            await asyncio.gather(*self._inflight, return_exceptions=True)
        self._run.set_status("orchestrator", "done")

    def _open_groups(self) -> None:
        while len(self._inflight) < self._config.max_inflight_groups and self._gate.may_open(self._policy.version):
            self._gate.opened()
            self._inflight.add(asyncio.ensure_future(self._finish_group(next(self._examples), self._policy.version)))

    async def _finish_group(self, example: int, version: int) -> FinishedGroup:
        group = FinishedGroup(await self._run_group(example), version)
        if group.clean:
            group.samples = await self._algorithm.samples(group.clean, temperature=self._config.sampling.temperature)
        return group

    async def _wait(self) -> None:
        """Wait until a group finishes or the policy changes."""
        if any(task.done() for task in self._inflight):
            return
        self._policy.changed.clear()
        held = not self._inflight
        if held:
            self._run.set_status("orchestrator", f"waiting for policy {self._policy.version + 1}")
        else:
            wanted = self._config.groups_per_batch - len(self._pending.groups)
            self._run.set_status("orchestrator", f"waiting for {max(wanted, 1)} groups of batch {self._step}")
        change = asyncio.ensure_future(self._policy.changed.wait())
        started = time.perf_counter()
        timeout_s = self._config.orchestrator.policy_timeout_s
        done, _ = await asyncio.wait({*self._inflight, change}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        change.cancel()
        if held:
            self._pending.held_s += time.perf_counter() - started
        if not done:
            what = f"policy {self._policy.version + 1}" if held else f"{len(self._inflight)} groups of rollouts"
            raise PrimeError(
                f"the orchestrator waited {timeout_s:.0f} s for {what} and nothing came",
                hint="look at the logs of the trainer and the inference server",
            )

    def _collect(self) -> None:
        for task in [task for task in self._inflight if task.done()]:
            self._inflight.discard(task)
            group = task.result()
            if group.clean:
                self._failed_in_a_row = 0
            else:
                self._failed_in_a_row += 1
                self._give_up_if_hopeless(group)
            self._pending.groups.append(group)

    def _give_up_if_hopeless(self, group: FinishedGroup) -> None:
        if self._failed_in_a_row >= _HOPELESS_BATCHES * self._config.groups_per_batch:
            (error, _), *_ = error_counts([group]).most_common(1)
            raise PrimeError(
                f"the last {self._failed_in_a_row} groups had no rollout without an error; the last error: {error}",
                hint=f"the environment's own log lies under {self._run.path / 'logs'}",
            )

    def _drop_stale(self) -> None:
        fresh = [group for group in self._pending.groups if not self._gate.is_too_old(group.version, self._step)]
        dropped = len(self._pending.groups) - len(fresh)
        for _ in range(dropped):
            self._gate.dropped()
        self._pending.stale_groups += dropped
        self._pending.groups = fresh

    def _cut_batch(self) -> None:
        size = self._config.groups_per_batch
        groups, later = self._pending.groups[:size], self._pending.groups[size:]
        self._run.set_status("orchestrator", f"packing batch {self._step}")
        samples = [sample for group in groups for sample in group.samples]
        write_batch(Batch(self._step, samples), self._run.batch(self._step))
        self._store_rollouts(groups)
        self._run.append_metrics(self._step, "orchestrator", self._metrics(groups, samples))
        errors = error_counts(groups)
        for error, count in errors.most_common(3):
            print(f"step {self._step}: {count} rollouts failed: {error}", flush=True)  # noqa: T201 - this log
        self._pending = _Step(groups=later)
        self._step += 1

    def _store_rollouts(self, groups: list[FinishedGroup]) -> None:
        path = self._run.rollouts(self._step)
        aside = path.with_suffix(".aside")
        with aside.open("w") as file:
            for group in groups:
                for rollout in group.rollouts:
                    file.write(json.dumps(stored_rollout(rollout, group), default=str) + "\n")
        aside.replace(path)

    def _metrics(self, groups: list[FinishedGroup], samples: list[Sample]) -> dict[str, float | int]:
        elapsed = time.perf_counter() - self._pending.started
        staleness = [self._gate.staleness(group.version, self._step) for group in groups]
        values = rollout_metrics(groups, samples)
        tokens = int(sum(len(sample.token_ids) for sample in samples))
        return values | {
            "off_policy/mean": sum(staleness) / len(staleness),
            "off_policy/max": max(staleness),
            "off_policy/dropped": self._pending.stale_groups,
            "progress/batch_tokens": tokens,
            "time/collect": elapsed,
            "time/wait_for_policy": self._pending.held_s,
            "time/update_weights": self._policy.update_seconds,
            "perf/rollouts_per_second": int(values["rollouts"]) / elapsed if elapsed else 0.0,
        }
