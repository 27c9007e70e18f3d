"""From finished groups to batches: what is admitted, what is dropped, when a batch is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prime_cli.core.errors import PrimeError
from prime_cli.rl.orchestrator.curriculum import Filter
from prime_cli.rl.orchestrator.gate import StalenessGate
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup, error_counts
from prime_cli.rl.orchestrator.sources import Source
from prime_cli.rl.transport import Sample

_HOPELESS_BATCHES = 2
_EMPTY_BATCHES = 10


@dataclass
class Cut:
    """A batch as it was cut, with everything that ended since the one before.

    Attributes:
        sources: the environments of the run.
        groups: what the batch is made of.
        left_out: finished groups that were not admitted, or had no rollout without an error.
        samples: what is trained on.
        stale: how many groups were dropped for their age, in flight or waiting.
        filtered: how many samples each filter caught.
        reached: how many groups of each environment came to its admission gates.
    """

    step: int
    sources: list[str] = field(default_factory=list)
    groups: list[FinishedGroup] = field(default_factory=list)
    left_out: list[FinishedGroup] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    stale: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)

    @property
    def finished(self) -> list[FinishedGroup]:
        """Every finished group that this batch accounts for."""
        return self.groups + self.left_out


class Sink:
    """Takes each finished group once, and cuts batches of at least `batch_size` rollouts.

    Args:
        sources: the environments by name.
        gate: says what is too old.
        pre_batch_filters: looked at when a group has finished; a batch refills what they drop.
        post_batch_filters: looked at when a batch is cut; it gets smaller by what they drop.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        gate: StalenessGate,
        *,
        pre_batch_filters: Sequence[Filter] = (),
        post_batch_filters: Sequence[Filter] = (),
    ) -> None:
        self._sources = sources
        self._gate = gate
        self._pre_batch_filters = pre_batch_filters
        self._post_batch_filters = post_batch_filters
        self.step = 1
        self.pending: list[FinishedGroup] = []
        self._next = Cut(1, list(sources))
        self._failed_in_a_row = 0
        self._refused_in_a_row = 0
        self._empty_in_a_row = 0

    def start_after(self, step: int) -> None:
        """Collect the batch after `step` next."""
        self.step = step + 1
        self._next = Cut(self.step, list(self._sources))

    @property
    def rollouts(self) -> int:
        """Rollouts that wait for their batch."""
        return sum(group.opened.size for group in self.pending)

    @property
    def is_full(self) -> bool:
        """Whether there is enough for a batch."""
        return self.rollouts >= self._gate.batch_size

    def take(self, group: FinishedGroup) -> None:
        """Take a finished group.

        Raises:
            PrimeError: every rollout has failed for a while, or nothing has been admitted for a while.
        """
        source = self._sources[group.opened.source]
        source.sampler.told(group.opened.example, group.rewards)
        if self.is_stale(group.opened):
            self._next.stale += 1
            self._next.left_out.append(group)
        elif not group.clean:
            self._failed_in_a_row += group.opened.size
            self._next.left_out.append(group)
            self._give_up_on_errors(group)
        elif not self._admits(source, group):
            self._failed_in_a_row = 0
            self._refused_in_a_row += group.opened.size
            self._next.left_out.append(group)
            self._give_up_on_refusals()
        else:
            self._failed_in_a_row = self._refused_in_a_row = 0
            self.pending.append(group)

    def is_stale(self, opened: OpenGroup) -> bool:
        """Say whether a group can no longer join the batch that is collected now, nor any later one."""
        return not opened.frozen and self._gate.is_too_old(opened.version, self.step)

    def note_cancelled(self) -> None:
        """Count a group that was given up in flight for its age."""
        self._next.stale += 1

    def cut(self) -> Cut:
        """Cut a batch, and go on to the next; what has become too old for it is dropped.

        Raises:
            PrimeError: there was nothing to learn from in several batches in a row.
        """
        cut = self._next
        while sum(group.opened.size for group in cut.groups) < self._gate.batch_size:
            cut.groups.append(self.pending.pop(0))
        samples = [sample for group in cut.groups for sample in group.samples]
        cut.samples = self._filtered(samples, self._post_batch_filters, cut)
        self._give_up_on_empty_batches(cut)
        self.step += 1
        self._next = Cut(self.step, list(self._sources))
        self._drop_stale()
        return cut

    def _drop_stale(self) -> None:
        stale = [group for group in self.pending if self.is_stale(group.opened)]
        self._next.stale += len(stale)
        self._next.left_out += stale
        self.pending = [group for group in self.pending if not self.is_stale(group.opened)]

    def _admits(self, source: Source, group: FinishedGroup) -> bool:
        had_samples = bool(group.samples)
        group.samples = self._filtered(group.samples, self._pre_batch_filters, self._next)
        self._next.reached[source.name] += 1
        admitted = not (had_samples and not group.samples) and all(gate.admits(group) for gate in source.gates)
        self._next.admitted[source.name] += admitted
        return admitted

    @staticmethod
    def _filtered(samples: list[Sample], filters: Sequence[Filter], cut: Cut) -> list[Sample]:
        if not filters:
            return samples
        kept = []
        cut.filtered.update({each.name: 0 for each in filters})
        for sample in samples:
            caught = [each for each in filters if each.catches(sample)]
            cut.filtered.update(each.name for each in caught)
            if not any(each.enforce for each in caught):
                kept.append(sample)
        return kept

    def _give_up_on_errors(self, group: FinishedGroup) -> None:
        if self._failed_in_a_row >= _HOPELESS_BATCHES * self._gate.batch_size:
            (error, _), *_ = error_counts([group]).most_common(1)
            raise PrimeError(
                f"the last {self._failed_in_a_row} rollouts all ended with an error; the last error: {error}",
                hint="the environment's own log lies among the logs of the run",
            )

    def _give_up_on_refusals(self) -> None:
        if self._refused_in_a_row >= _EMPTY_BATCHES * self._gate.batch_size:
            raise PrimeError(
                f"none of the last {self._refused_in_a_row} rollouts was admitted to a batch: "
                f"{_signal(self._next.left_out)}",
                hint="loosen the filters and gates, or take examples that are neither too hard nor too easy",
            )

    def _give_up_on_empty_batches(self, cut: Cut) -> None:
        self._empty_in_a_row = 0 if cut.samples else self._empty_in_a_row + 1
        if self._empty_in_a_row >= _EMPTY_BATCHES:
            raise PrimeError(
                f"{self._empty_in_a_row} batches in a row held nothing to learn from; of the last one, "
                f"{_signal(cut.groups)}",
                hint="a group teaches by its differences: take easier or harder examples, more rollouts per example, "
                "a higher temperature, or a reward with steps between 0 and 1",
            )


def _signal(groups: Sequence[FinishedGroup]) -> str:
    """Say how groups came out, for a user whose run learns nothing."""
    rewards = [group.rewards for group in groups if group.rewards]
    alike = [values for values in rewards if max(values) == min(values)]
    right = sum(values[0] > 0 for values in alike)
    texts = [f"{right} of {len(groups)} groups were all right", f"{len(alike) - right} all wrong"]
    errors = error_counts(groups)
    if errors:
        (error, count), *_ = errors.most_common(1)
        texts.append(f"{sum(errors.values())} rollouts failed, {count} with: {error}")
    return ", ".join(texts)
