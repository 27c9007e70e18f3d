"""Going on with an evaluation that was stopped: which rollouts stay, and which are run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from prime_cli.evals.figures import RolloutFigures, figures_of
from prime_cli.evals.store import EvalDirectory


def keep_finished(
    directory: EvalDirectory, examples: Sequence[Mapping[str, Any]], rollouts_per_example: int, *, whole_groups: bool
) -> list[RolloutFigures]:
    """Drop from the results on disk what is to be run again, and return the figures of the rest.

    Run again is a rollout that failed, one of an example that is not asked for, one too many, and with `whole_groups`
    (the rollouts of an example are scored together) each rollout of an example that is not complete.
    """
    rollouts = directory.read_rollouts()
    wanted = {example["example_id"] for example in examples}
    kept, seen = [], Counter[Hashable]()
    for rollout in rollouts:
        figures = figures_of(rollout)
        if figures.error is None and figures.example_id in wanted and seen[figures.example_id] < rollouts_per_example:
            seen[figures.example_id] += 1
            kept.append((rollout, figures))
    if whole_groups:
        kept = [(rollout, figures) for rollout, figures in kept if seen[figures.example_id] == rollouts_per_example]
    if len(kept) < len(rollouts):
        directory.replace_rollouts(rollout for rollout, _ in kept)
    return [figures for _, figures in kept]
