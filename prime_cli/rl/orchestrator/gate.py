"""How far generation may run ahead of training.

Batch s (from 1) is trained by policy v(s-1) and produces v(s). A rollout dispatched under version v and trained in
batch s is s - 1 - v versions stale. Pure arithmetic: no clock, no processes, no state.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEAD = 1
"""Batches that may be collected ahead of the one that is trained. More would only age in a queue."""


@dataclass(frozen=True)
class StalenessGate:
    """Decides when a group may be opened, when a batch may be shipped, and which groups are too old to train on.

    Args:
        batch_size: rollouts in one batch, at the least.
        max_off_policy_steps: the staleness that is still trained on; 0 makes the run synchronous.
        max_steps: batches in the whole run; no group is opened that no batch would take.
    """

    batch_size: int
    max_off_policy_steps: int
    max_steps: int

    def joins(self, step: int, outstanding: int) -> int:
        """Return the batch that one more group would join while `step` is collected, if groups came back in order.

        Args:
            outstanding: rollouts that are in flight, or finished and not shipped yet.
        """
        return step + outstanding // self.batch_size

    def may_open(self, *, step: int, outstanding: int, version: int) -> bool:
        """Say whether one more group may be opened under `version` while batch `step` is collected."""
        joined = self.joins(step, outstanding)
        return (
            joined <= self.max_steps
            and not self.is_too_old(version, joined)
            and self.staleness(version, step) <= self._lead
        )

    def may_ship(self, *, step: int, version: int) -> bool:
        """Say whether batch `step` may go to the trainer while the server samples with `version`."""
        return self.staleness(version, step) <= self._lead

    def staleness(self, version: int, step: int) -> int:
        """Return the staleness of a group dispatched under `version` when it is trained in batch `step`."""
        return step - 1 - version

    def is_too_old(self, version: int, step: int) -> bool:
        """Say whether a group dispatched under `version` may no longer join batch `step`."""
        return self.staleness(version, step) > self.max_off_policy_steps

    @property
    def _lead(self) -> int:
        return min(_LEAD, self.max_off_policy_steps)
