"""What a budget of calls buys. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from prime_cli.core.errors import BadInput
from prime_cli.gepa.examples import SplitSizes


@dataclass(frozen=True)
class Plan:
    """The calls of a run: the baseline first, then iterations, each of which tests one proposal on a minibatch.

    An iteration runs the parent and the proposal on the minibatch, and the proposal on the validation examples only
    when it did better there.
    """

    max_calls: int
    minibatch_size: int
    sizes: SplitSizes

    @property
    def baseline(self) -> int:
        """Calls that measure the initial prompt on the validation examples."""
        return self.sizes.val

    @property
    def iteration(self) -> int:
        """The most calls that one iteration may take."""
        return 2 * self.minibatch_size + self.sizes.val

    @property
    def floor(self) -> int:
        """The smallest budget that can find anything: the baseline and one iteration."""
        return self.baseline + self.iteration

    @property
    def fewest_proposals(self) -> int:
        """How many proposals are tested when each is accepted."""
        return (self.max_calls - self.baseline) // self.iteration

    @property
    def most_proposals(self) -> int:
        """How many proposals are tested when none is accepted; an iteration begins only while all of it would fit."""
        left = self.max_calls - self.baseline - self.iteration
        return 0 if left < 0 else left // (2 * self.minibatch_size) + 1

    @property
    def likely_proposals(self) -> int:
        """How many proposals are tested when every third is accepted."""
        each = 2 * self.minibatch_size + self.sizes.val / 3
        left = self.max_calls - self.baseline - self.iteration
        return 0 if left < 0 else int(left / each) + 1

    @property
    def comparison(self) -> int:
        """Calls of the held-out comparison, which the budget does not count."""
        return 2 * self.sizes.test

    def fits(self, used: int) -> bool:
        """Say whether another iteration surely fits when `used` calls are made."""
        return used + self.iteration <= self.max_calls

    def check(self) -> None:
        """Check that the budget can find anything.

        Raises:
            BadInput: it cannot; names the floor.
        """
        if self.max_calls < self.floor:
            raise BadInput(
                f"{self.max_calls} calls are too few: the baseline takes {self.baseline} and one proposal up to "
                f"{self.iteration}, so the least is {self.floor}",
                hint=f"give `--max-calls {self.floor}` or more, or fewer validation examples by --num-val",
            )

    def lines(self) -> list[str]:
        """Return what the budget buys in words."""
        sizes = self.sizes
        lines = [
            f"examples   {sizes.train} to reflect on, {sizes.val} to validate on, {sizes.test} held out",
            f"budget     {self.max_calls} calls at most: {self.baseline} for the baseline, then about "
            f"{self.likely_proposals} proposals ({self.fewest_proposals} if each is accepted, {self.most_proposals} "
            "if none is)",
            f"proposal   {2 * self.minibatch_size} calls on a minibatch of {self.minibatch_size}, and {sizes.val} more "
            "where it did better there",
        ]
        if sizes.test:
            lines.append(f"at the end {self.comparison} calls more compare the best prompt with the initial one")
        return lines

    def as_data(self) -> dict[str, int]:
        """Return the figures for `--output json`."""
        return {
            "max_calls": self.max_calls,
            "floor": self.floor,
            "baseline_calls": self.baseline,
            "calls_per_iteration": self.iteration,
            "likely_proposals": self.likely_proposals,
            "fewest_proposals": self.fewest_proposals,
            "most_proposals": self.most_proposals,
            "comparison_calls": self.comparison,
            "num_train": self.sizes.train,
            "num_val": self.sizes.val,
            "num_test": self.sizes.test,
        }
