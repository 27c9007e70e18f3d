"""From trajectories to samples, token for token."""

from __future__ import annotations

from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup, error_counts, failed_rollouts, rollout_metrics
from prime_cli.rl.orchestrator.samples import TokensMissing, samples_of_rollout


def turn(prompt: list[int], completion: list[int]) -> dict[str, Any]:
    return {
        "tokens": {
            "prompt_ids": prompt,
            "completion_ids": completion,
            "completion_mask": [1] * len(completion),
            "completion_logprobs": [-0.5] * len(completion),
        }
    }


def test_one_turn_is_one_sample_whose_completion_alone_counts() -> None:
    (sample,) = samples_of_rollout([turn([1, 2], [3, 4])], advantage=0.5, temperature=1.0)
    assert sample.token_ids == [1, 2, 3, 4]
    assert sample.rl_weights == [0, 0, 1, 1]
    assert sample.advantages == [0, 0, 0.5, 0.5]
    assert sample.logprobs == [0, 0, -0.5, -0.5]


def test_a_turn_that_extends_the_tokens_before_it_continues_the_sample() -> None:
    steps = [turn([1, 2], [3]), turn([1, 2, 3, 9, 9], [4])]
    (sample,) = samples_of_rollout(steps, advantage=1.0, temperature=1.0)
    assert sample.token_ids == [1, 2, 3, 9, 9, 4]
    assert sample.rl_weights == [0, 0, 1, 0, 0, 1]


def test_a_turn_whose_history_was_rewritten_starts_a_new_sample() -> None:
    steps = [turn([1, 2], [3]), turn([1, 7, 9], [4])]
    first, second = samples_of_rollout(steps, advantage=1.0, temperature=1.0)
    assert first.token_ids == [1, 2, 3]
    assert second.token_ids == [1, 7, 9, 4]


def test_a_rollout_without_token_ids_is_refused() -> None:
    with pytest.raises(TokensMissing):
        samples_of_rollout([{"tokens": None}], advantage=1.0, temperature=1.0)


def opened(version: int) -> OpenGroup:
    return OpenGroup(number=1, source="e", example=0, size=2, version=version)


def rollout(reward: float, error: str | None = None) -> dict[str, Any]:
    return {
        "reward": reward,
        "error": {"error": error} if error else None,
        "metrics": {"exact": reward},
        "trajectory": [turn([1], [2])],
    }


def test_failed_rollouts_are_counted_and_not_scored() -> None:
    group = FinishedGroup(opened(0), [rollout(1.0), rollout(0.0), rollout(0.0, error="boom")])
    values = rollout_metrics([group], [])
    assert values["reward/mean"] == 0.5
    assert values["errors"] == 1
    assert values["rollouts"] == 3


def test_groups_without_variance_count_in_the_reward() -> None:
    groups = [FinishedGroup(opened(0), [rollout(reward), rollout(1.0)]) for reward in (1.0, 0.0)]
    values = rollout_metrics(groups, [])
    assert values["reward/mean"] == 0.75
    assert values["groups/zero_advantage"] == 0.5


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None])
def test_a_reward_that_is_no_number_is_an_error_and_does_not_count(reward: Any) -> None:
    group = FinishedGroup(opened(0), [rollout(1.0), rollout(0.0), {**rollout(0.0), "reward": reward}])
    assert group.rewards == [1.0, 0.0]
    assert rollout_metrics([group], [])["errors"] == 1


def test_a_group_that_raised_is_a_record_of_failed_rollouts() -> None:
    failed = failed_rollouts({"example_id": 3, "prompt": []}, PrimeError("it broke\n  in line 1"), 2)
    group = FinishedGroup(opened(1), failed)
    assert group.clean == []
    assert error_counts([group]) == {"it broke": 2}
    assert rollout_metrics([group], [])["rollouts"] == 2


def test_a_group_in_which_everything_failed_yields_nothing() -> None:
    group = FinishedGroup(opened(0), [rollout(0.0, error="boom")] * 2)
    assert group.clean == []
    assert rollout_metrics([group], [])["reward/mean"] == 0.0
