"""What rollouts cost, and when no more are started."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prime_cli.evals.cost import Meter, TokenPrice, tokens_in

PRICE = TokenPrice(input=1.0, output=4.0)


@pytest.mark.parametrize(
    ("rollout", "cost"),
    [
        ({"completion": ["x"], "token_usage": {"input_tokens": 1000.0, "output_tokens": 250.0}}, 0.002),
        ({"completion": [], "token_usage": {"input_tokens": 1000.0, "output_tokens": 0.0}}, 0.001),
        ({"completion": [], "token_usage": None}, 0.0),
        ({"completion": ["x"]}, None),
    ],
)
def test_a_rollout_costs_its_tokens_and_one_that_was_not_counted_nobody_knows_what(
    rollout: dict[str, Any], cost: float | None
) -> None:
    assert PRICE.of_rollout(rollout) == cost


def test_nothing_starts_that_could_pass_the_limit_with_what_is_in_flight() -> None:
    meter = Meter(most=1.0)
    for _ in range(4):
        meter.add(0.1)
    assert meter.delay(1, 4) == 0.0
    assert meter.delay(1, 5) == 0.0
    assert math.isinf(meter.delay(1, 6) or 0.0)
    assert meter.delay(6, 0) == 0.0
    assert meter.delay(7, 0) is None


def test_costs_that_vary_leave_more_room() -> None:
    steady, varied = Meter(most=1.0), Meter(most=1.0)
    for cost in (0.1, 0.1):
        steady.add(cost)
    for cost in (0.05, 0.15):
        varied.add(cost)
    assert (steady.expected(), varied.expected()) == (pytest.approx(0.1), pytest.approx(0.15))
    assert steady.projected(8) == varied.projected(8) == pytest.approx(1.0)


def test_before_the_first_has_ended_only_a_few_start() -> None:
    meter = Meter(most=1.0)
    assert [meter.delay(1, in_flight) for in_flight in range(5)] == [0.0, 0.0, 0.0, 0.0, math.inf]
    assert meter.delay(16, 0) == 0.0
    assert Meter().delay(1, 5000) == 0.0


def test_what_was_spent_before_counts() -> None:
    assert Meter(0.9, 9, most=1.0).delay(1, 0) == 0.0
    assert Meter(0.9, 9, most=1.0).delay(2, 0) is None


def test_prompts_are_measured_by_their_letters() -> None:
    assert (
        tokens_in([{"role": "user", "content": "x" * 400}, {"role": "user", "content": [{"content": "y" * 40}]}]) == 112
    )
    assert tokens_in(None) == 0
