"""What the figures of a run say is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from prime_cli.rl.alarms import alarms_of, missing_signal
from prime_cli.rl.orchestrator.groups import rollout_metrics

HEALTHY = {
    "rollouts": 16, "errors": 0, "samples": 12, "groups/all_right": 0.1, "groups/all_wrong": 0.1, "truncated": 0.0,
    "mismatch_kl/mean": 1e-4, "off_policy/mean": 0.5, "entropy/mean": 2.0, "reward/mean": 0.5, "reward/max": 1.0,
}  # fmt: skip


@dataclass
class Group:
    """What the figures of a batch need to know of a finished group without errors."""

    rewards: list[float]

    @property
    def clean(self) -> list[dict[str, Any]]:
        return [{"reward": reward, "error": None, "trajectory": []} for reward in self.rewards]

    rollouts = clean


def sounding(**figures: Any) -> list[str]:
    changed = {key.replace("__", "/"): value for key, value in figures.items()}
    return [alarm.figure for alarm in alarms_of([{**HEALTHY, **changed}])]


def test_nothing_sounds_without_a_reason() -> None:
    assert alarms_of([]) == []
    assert sounding() == []


@pytest.mark.parametrize(
    ("rewards", "said", "advice"),
    [
        ([[0, 0], [0, 0], [0, 0], [1, 1]], "75% of the groups are all wrong, 25% all right, 0% mixed", "too hard"),
        ([[1, 1], [1, 1], [0, 0]], "33% of the groups are all wrong, 67% all right, 0% mixed", "too easy"),
    ],
)
def test_a_batch_without_signal_is_explained(rewards: list[list[float]], said: str, advice: str) -> None:
    figures = rollout_metrics([Group(group) for group in rewards], samples=[])  # type: ignore[misc]
    words = missing_signal(figures)
    assert words is not None
    assert words.startswith("there is nothing to learn from: ")
    assert said in words
    assert advice in words


def test_a_batch_with_signal_needs_no_explanation() -> None:
    assert missing_signal(HEALTHY) is None
    assert missing_signal({**HEALTHY, "errors": 16, "samples": 0}) is None, "that is another alarm"
    assert "there is little" in str(missing_signal({**HEALTHY, "samples": 1, "groups/all_wrong": 0.9}))


def test_a_mismatch_is_put_down_to_age_or_to_the_computation() -> None:
    (old,) = alarms_of([{**HEALTHY, "mismatch_kl/mean": 0.02, "off_policy/mean": 2.0}])
    (fresh,) = alarms_of([{**HEALTHY, "mismatch_kl/mean": float("inf"), "off_policy/mean": 0.0}])
    (some,) = alarms_of([{**HEALTHY, "mismatch_kl/mean": 0.02, "off_policy/mean": 0.6}])
    assert "2.0 versions old" in old.words
    assert "0.6 versions old" in some.words, "a batch of which a few groups are old"
    assert "compute different log-probabilities" in fresh.words


def test_a_step_that_is_not_trained_on_yet_leaves_the_alarm_of_the_one_before() -> None:
    waiting = {key: value for key, value in HEALTHY.items() if not key.startswith(("mismatch", "entropy"))}
    assert [alarm.figure for alarm in alarms_of([{**HEALTHY, "mismatch_kl/mean": 1.0}, waiting])] == [
        "mismatch_kl/mean"
    ]


def test_errors_and_cut_completions_sound_when_they_are_more_than_half() -> None:
    assert sounding(errors=9, error__Timeout=9) == ["errors"]
    assert sounding(errors=7) == []
    assert sounding(truncated=0.6) == ["truncated"]


@pytest.mark.parametrize(
    ("entropies", "rewards", "sounds"),
    [
        ([2.0] * 10 + [0.05] * 10, [0.3] * 20, True),
        ([2.0] * 10 + [0.05] * 10, [0.3] * 15 + [0.4] * 5, False),  # it still learns
        ([2.0] * 10 + [0.05] * 10, [0.3] * 10 + [0.98] * 10, False),  # it is sure because it is right
        ([2.0] * 20, [0.3] * 20, False),
        ([2.0] * 5 + [0.05] * 5, [0.3] * 10, False),  # too early to tell
    ],
)
def test_entropy_collapses_when_the_policy_is_sure_and_wrong(
    entropies: list[float], rewards: list[float], sounds: bool
) -> None:
    steps = [
        {**HEALTHY, "entropy/mean": entropy, "reward/mean": reward}
        for entropy, reward in zip(entropies, rewards, strict=True)
    ]
    assert [alarm.figure for alarm in alarms_of(steps)] == (["entropy/mean"] if sounds else [])
