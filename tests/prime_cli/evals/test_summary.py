"""From rollouts to figures, and from figures to averages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from prime_cli.evals.figures import figures_of
from prime_cli.evals.summary import EvalSummary, summarize

PATH = Path("somewhere")


def summary_of(*rollouts: dict[str, Any]) -> EvalSummary:
    return summarize(PATH, [figures_of(rollout) for rollout in rollouts], 1.0)


def rollout(example: int, reward: float, **changes: Any) -> dict[str, Any]:
    return {"example_id": example, "reward": reward, "metrics": {}, "error": None, **changes}


def test_failed_rollouts_are_counted_and_never_averaged() -> None:
    boom = {"error": "Boom", "error_chain_repr": "Boom('boom')", "message": "boom"}
    summary = summary_of(
        rollout(0, 1.0, metrics={"m": 1.0}),
        rollout(1, 0.5, metrics={"m": 0.0}),
        rollout(2, 0.0, error=boom),
        rollout(3, 0.0, error=boom),
        rollout(4, 0.0, error="another"),
    )
    assert summary.reward is not None
    assert summary.reward.mean == 0.75
    assert (summary.num_rollouts, summary.num_errors) == (5, 3)
    assert list(summary.errors.items()) == [("boom", 2), ("another", 1)]
    assert summary.metrics["m"].mean == 0.5


def test_nothing_but_failures_has_no_reward() -> None:
    assert summary_of(rollout(0, 0.0, error="x")).reward is None
    assert summary_of().reward is None


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "high"])
def test_a_reward_that_is_no_number_is_a_failure(reward: Any) -> None:
    summary = summary_of(rollout(0, reward), rollout(1, 1.0))
    assert summary.num_errors == 1
    assert summary.reward is not None
    assert summary.reward.mean == 1.0


def test_an_error_without_a_message_is_told_by_its_chain() -> None:
    error = {
        "error": "ModelError",
        "error_chain_repr": "ModelError() -> Refused('no')",
        "error_chain_str": "ModelError",
    }
    assert figures_of(rollout(0, 0.0, error=error)).error == "ModelError() -> Refused('no')"


def test_pass_chances_and_metric_errors_are_by_example() -> None:
    # example 0: 1 of 2 passed, example 1: 2 of 2
    summary = summary_of(rollout(0, 0.0), rollout(0, 1.0), rollout(1, 0.5), rollout(1, 1.0))
    assert summary.pass_at_k == {"1": 0.75, "2": 1.0}
    assert summary.pass_all_k == {"1": 0.75, "2": 0.5}
    assert summary_of(rollout(0, 1.0), rollout(1, 1.0)).pass_at_k == {}
    by_example = summary_of(*(rollout(e, 0.0, metrics={"m": float(e)}) for e in (0, 0, 1, 1)))
    # two clusters at 0 and 1: the same error as of two single values, sqrt(0.5 / 2)
    assert by_example.metrics["m"].standard_error == pytest.approx(0.5)


def test_a_metric_that_some_rollouts_lack_is_averaged_over_those_that_have_it() -> None:
    summary = summary_of(rollout(0, 1.0, metrics={"turns": 2}), rollout(1, 1.0))
    assert (summary.metrics["turns"].mean, summary.metrics["turns"].n) == (2.0, 1)


def test_token_usage_is_per_rollout() -> None:
    usage = [{"input_tokens": 10.0, "output_tokens": 2.0}, {"input_tokens": 20.0, "output_tokens": 4.0}]
    summary = summary_of(*(rollout(i, 1.0, token_usage=used) for i, used in enumerate(usage)), rollout(2, 1.0))
    assert summary.usage == {"input_tokens": 15.0, "output_tokens": 3.0}


def test_every_score_has_an_interval_and_the_numbers_that_it_is_from() -> None:
    summary = summary_of(*(rollout(e, float(e > 0), metrics={"turns": float(e)}) for e in (0, 0, 1, 1, 2, 2)))
    reward = summary.estimates()["reward"]
    assert (reward["rollouts"], reward["examples"]) == (6, 3)
    assert reward["interval"][0] < reward["mean"] < reward["interval"][1]
    assert list(summary.rows()) == ["reward", "turns", "pass@1", "pass@2", "pass^2"]
    assert summary.as_data()["estimates"]["pass_all_k"]["2"]["examples"] == 3


def test_rewards_are_told_by_task_by_environment_and_by_each_of_several_tags() -> None:
    rows = [
        rollout(0, 1.0, task="sums", info={"env_id": "easy", "tags": ["short", "new"]}),
        rollout(1, 0.0, task="sums", info={"env_id": "hard", "tags": ["short"]}),
        rollout(2, 0.0, task="words", info='{"env_id": "hard"}'),
    ]
    by_tag = summary_of(*rows).by_tag
    means = {tag: {value: e.mean for value, e in values.items()} for tag, values in by_tag.items()}
    assert means == {
        "environment": {"easy": 1.0, "hard": 0.0},
        "task": {"sums": 0.5, "words": 0.0},
        "tags": {"new": 1.0, "short": 0.5},
    }


def test_a_tag_with_one_value_or_one_for_every_example_is_no_table() -> None:
    assert summary_of(*(rollout(e, 1.0, task="same") for e in range(3))).by_tag == {}
    assert summary_of(*(rollout(e, 1.0, task=f"id-{e}") for e in range(300))).by_tag == {}


def test_a_metric_that_is_no_number_is_left_out() -> None:
    summary = summary_of(rollout(0, 1.0, metrics={"m": math.nan}), rollout(1, 1.0, metrics={"m": 2.0}))
    assert (summary.metrics["m"].mean, summary.metrics["m"].n) == (2.0, 1)
