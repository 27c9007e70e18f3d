"""One `[[env]]` of a run: where its examples come from, how a group of them is generated and what it teaches."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prime_cli.environments.runtime import EnvironmentFailed, EnvironmentWorkerDied, EnvironmentWorkers, ModelEndpoint
from prime_cli.rl.orchestrator.algorithms import Algorithm
from prime_cli.rl.orchestrator.curriculum import AdmissionGate, Sampler
from prime_cli.rl.orchestrator.groups import OpenGroup, failed_rollouts

Rollouts = list[dict[str, Any]]

RunGroup = Callable[[OpenGroup], Awaitable[Rollouts]]
"""Returns the rollouts of a group; errors are data in the rollouts."""

_STATE_COLUMNS = ("trajectory",)


@dataclass
class Source:
    """An environment as the orchestrator's loop sees it.

    Attributes:
        ratio: its share of the groups, against the ratios of the others.
        temperature: what a group that is opened for this batch is sampled at.
        frozen: another model than the policy samples, so its rollouts never go stale.
    """

    name: str
    group_size: int
    run_group: RunGroup
    sampler: Sampler
    algorithm: Algorithm
    ratio: float = 1.0
    temperature: Callable[[int], float] = lambda step: 1.0
    frozen: bool = False
    gates: Sequence[AdmissionGate] = field(default_factory=tuple)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"sampler": self.sampler.state(), "algorithm": self.algorithm.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the source of that state was."""
        self.sampler.restore(state["sampler"])
        self.algorithm.restore(state["algorithm"])


@dataclass
class WorkerGroups:
    """Runs groups in the workers of an environment; it is a `RunGroup`.

    Attributes:
        rows: the environment's training set.
        seed: that of the run; with the group's number, a rollout's place and the attempt it gives the rollout's seed.
        sampling_args: what is sent with each request, save the temperature.
        timeout_s: how long one attempt at a group may take.
        retries: how often rollouts that ended with an error are run again.
        whole_groups: the environment scores a group as a whole, so that one failed rollout runs all of it again.
    """

    workers: EnvironmentWorkers
    rows: Sequence[Mapping[str, Any]]
    endpoint: ModelEndpoint
    sampling_args: Mapping[str, Any]
    timeout_s: float | None = None
    retries: int = 0
    whole_groups: bool = False
    seed: int = 0

    async def __call__(self, opened: OpenGroup) -> Rollouts:
        """Return the rollouts of the group."""
        rollouts = await self._attempt(opened, range(opened.size), 0)
        for attempt in range(1, self.retries + 1):
            failed = [index for index, rollout in enumerate(rollouts) if rollout.get("error")]
            if not failed:
                break
            again = range(opened.size) if self.whole_groups else failed
            for index, rollout in zip(again, await self._attempt(opened, again, attempt), strict=True):
                rollouts[index] = rollout
        return rollouts

    async def _attempt(self, opened: OpenGroup, members: Sequence[int], attempt: int) -> Rollouts:
        """Run rollouts; those that a dying worker took with it are run once more, by the one that replaces it.

        A worker takes everything with it that it was doing, which may be all that is in flight, and that says nothing
        about most of it.
        """
        row = self.rows[opened.example]
        was_lost = False
        while True:
            try:
                return await self.workers.run_group(
                    [row] * len(members),
                    self.endpoint,
                    {**self.sampling_args, "temperature": opened.temperature},
                    state_columns=_STATE_COLUMNS,
                    timeout_s=self.timeout_s,
                    seeds=[rollout_seed(self.seed, opened.number, member, attempt) for member in members],
                )
            except (EnvironmentFailed, EnvironmentWorkerDied) as error:
                # One bad example or one dead worker does not end a run; the sink gives up when nothing else comes.
                if was_lost or isinstance(error, EnvironmentFailed):
                    return failed_rollouts(row, error, len(members))
                was_lost = True


def rollout_seed(seed: int, group: int, member: int, attempt: int) -> int:
    """Return the seed of a rollout, from 0 to 2^62: the same whenever and wherever it is generated."""
    digest = hashlib.blake2b(f"{seed}/{group}/{member}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2
