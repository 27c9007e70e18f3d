"""Going on with an evaluation that was stopped: which rollouts stay, and which are run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from prime_cli.evals.figures import figures_of
from prime_cli.evals.store import EvalDirectory, parsed_rollout
from prime_cli.evals.summary import EvalTally


@dataclass(frozen=True)
class Kept:
    """What stays of the results, and how many of their lines were no rollouts and are set aside.

    `rollouts_of` says how many rollouts each example has.
    """

    tally: EvalTally = field(default_factory=EvalTally)
    rollouts_of: Counter[Hashable] = field(default_factory=Counter)
    num_broken: int = 0


def keep_finished(
    directory: EvalDirectory,
    wanted: Iterable[Hashable],
    at_most: int,
    *,
    whole_groups: bool,
    retry_errors: bool = False,
) -> Kept:
    """Drop from the results on disk what is to be run again, and return what is known of the rest.

    Run again is a rollout of an example that is not asked for (`wanted` are those that are), one more than `at_most`
    of an example, with `retry_errors` one that failed, and with `whole_groups` (the rollouts of an example are scored
    together) each rollout of an example that is not complete. A line that cannot be read goes to a file of its own
    beside the results.

    Raises:
        PrimeError: the results cannot be written.
    """
    directory.cut_off_half_a_line()
    examples, seen = set(wanted), Counter[Hashable]()
    stays, tally, num_broken = bytearray(), EvalTally(), 0
    for line in directory.lines():
        rollout = parsed_rollout(line)
        figures = None
        if rollout is None:
            directory.set_aside(line)
            num_broken += 1
        else:
            figures = figures_of(rollout)
            is_good_enough = figures.error is None or not retry_errors
            if not (is_good_enough and figures.example_id in examples and seen[figures.example_id] < at_most):
                figures = None
        stays.append(figures is not None)
        if figures is not None:
            seen[figures.example_id] += 1
            tally.add(figures)
    if not all(stays):
        directory.select_lines(map(bool, stays))
    if whole_groups and any(count < at_most for count in seen.values()):
        directory.select_lines(seen[rollout.get("example_id")] == at_most for rollout in directory.rollouts())
        seen = Counter({example: count for example, count in seen.items() if count == at_most})
        tally = EvalTally()
        for rollout in directory.rollouts():
            tally.add(figures_of(rollout))
    return Kept(tally, seen, num_broken)
