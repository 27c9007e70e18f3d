"""What a budget buys."""

from __future__ import annotations

import pytest

from prime_cli.core.errors import BadInput
from prime_cli.gepa.examples import SplitSizes
from prime_cli.gepa.plan import Plan

SIZES = SplitSizes(train=100, val=50, test=50)


def test_the_budget_pays_the_baseline_and_then_proposals_accepted_or_not() -> None:
    plan = Plan(500, 3, SIZES)
    assert (plan.baseline, plan.iteration, plan.floor, plan.comparison) == (50, 56, 106, 100)
    # each accepted: 450 / 56; none accepted: one that may still be accepted, and 394 / 6 before it
    assert (plan.fewest_proposals, plan.most_proposals) == (8, 66)
    assert plan.fewest_proposals < plan.likely_proposals < plan.most_proposals


def test_a_budget_under_the_floor_is_refused_with_the_floor() -> None:
    Plan(106, 3, SIZES).check()
    with pytest.raises(BadInput, match="so the least is 106") as refused:
        Plan(105, 3, SIZES).check()
    assert "--max-calls 106" in str(refused.value.hint)


@pytest.mark.parametrize("accepted_every", [1, 2, 5, 1000])
@pytest.mark.parametrize("max_calls", [106, 107, 250, 500])
def test_whatever_is_accepted_the_budget_is_kept_and_the_number_of_proposals_is_as_said(
    max_calls: int, accepted_every: int
) -> None:
    plan = Plan(max_calls, 3, SIZES)
    used, proposals = plan.baseline, 0
    while plan.fits(used):
        proposals += 1
        used += 6 + (50 if proposals % accepted_every == 0 else 0)
    assert used <= max_calls
    assert plan.fewest_proposals <= proposals <= plan.most_proposals
