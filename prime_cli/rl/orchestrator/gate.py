"""How far generation may run ahead of training.

Batch s (from 1) is trained by policy v(s-1) and produces v(s). A rollout dispatched under version v and trained in
batch s is s - 1 - v versions stale. Pure bookkeeping: no clock, no processes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StalenessGate:
    """Decides when a group may be opened, and which finished groups are too old to train on.

    Args:
        groups_per_batch: groups in one batch.
        max_off_policy_steps: the staleness that is still trained on; 0 makes the run synchronous.
        max_steps: batches in the whole run; no group is opened that no batch would take.
    """

    groups_per_batch: int
    max_off_policy_steps: int
    max_steps: int
    owed: int = 0  # groups opened and neither trained on nor dropped, plus those already trained on

    def may_open(self, version: int) -> bool:
        """Say whether one more group may be opened while the server samples with `version`.

        The group would join the batch that the groups before it do not fill; under `version` it is trained with
        staleness (index of that batch) - version.
        """
        batch_index = self.owed // self.groups_per_batch
        return batch_index < self.max_steps and batch_index - version <= self.max_off_policy_steps

    def opened(self) -> None:
        """Count a group that was opened."""
        self.owed += 1

    def dropped(self) -> None:
        """Count back a group that will not be trained on, so that another takes its place."""
        self.owed -= 1

    def staleness(self, version: int, step: int) -> int:
        """Return the staleness of a group dispatched under `version` when it is trained in batch `step`."""
        return step - 1 - version

    def is_too_old(self, version: int, step: int) -> bool:
        """Say whether a group dispatched under `version` may no longer join batch `step`."""
        return self.staleness(version, step) > self.max_off_policy_steps
