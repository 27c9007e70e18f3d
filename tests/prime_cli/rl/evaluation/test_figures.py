"""The figures of an evaluation, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from prime_cli.rl.evaluation.figures import eval_figures


def rollout(example: int, reward: float, **more: Any) -> dict[str, Any]:
    return {"example_id": example, "reward": reward, "token_usage": {"output_tokens": 10 * example}, **more}


def test_rewards_are_averaged_with_an_error_that_knows_of_examples() -> None:
    figures = eval_figures([rollout(1, 1.0), rollout(1, 1.0), rollout(2, 0.0), rollout(2, 0.5)])
    assert figures["reward/mean"] == figures["avg@2"] == 0.625
    assert figures["reward/n"] == 4
    # residual sums of the two examples: 0.75 and -0.75; 2/1 * (0.75^2 + 0.75^2) / 4^2
    assert figures["reward/standard_error"] == pytest.approx(math.sqrt(2 * 2 * 0.75**2 / 16))
    assert figures["reward/low"] < figures["reward/mean"] < figures["reward/high"]
    assert figures["completion_tokens/mean"] == 15


def test_the_chances_of_one_and_of_all_to_pass() -> None:
    rewards = {1: [1, 1, 0, 0], 2: [0, 0, 0, 0]}
    figures = eval_figures([rollout(example, reward) for example, group in rewards.items() for reward in group])
    assert figures["pass@1"] == figures["pass^1"] == pytest.approx((2 / 4 + 0) / 2)
    assert figures["pass@2"] == pytest.approx((1 - 1 / 6) / 2)  # of 6 pairs one has no success
    assert figures["pass^2"] == pytest.approx(1 / 6 / 2)
    assert figures["pass@4"] == 0.5
    assert figures["pass^4"] == 0
    assert "pass@8" not in figures


def test_rollouts_with_an_error_are_counted_by_kind_and_neither_scored_nor_averaged() -> None:
    figures = eval_figures(
        [
            rollout(1, 1.0, is_truncated=True, metrics={"length": 3}),
            rollout(2, 0.0, error={"error": "Timeout", "message": "too long"}),
            rollout(3, float("nan")),
        ]
    )
    assert (figures["rollouts"], figures["errors"], figures["reward/n"]) == (3, 2, 1)
    assert (figures["error/Timeout"], figures["error/InvalidReward"]) == (1, 1)
    assert (figures["reward/mean"], figures["truncated"], figures["metrics/length"]) == (1.0, 1.0, 3.0)
    assert "reward/standard_error" not in figures


def test_without_any_rollout_that_ended_well_there_is_no_reward() -> None:
    figures = eval_figures([rollout(1, 0.0, error={"error": "Boom"})])
    assert figures["reward/n"] == 0
    assert "reward/mean" not in figures
