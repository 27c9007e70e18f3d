"""Which examples are opened, which groups join a batch, and what of them is trained on; by hand-computed cases."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest

from prime_cli.rl.algorithm_config import SamplingConfig
from prime_cli.rl.curriculum_config import (
    FilterConfig,
    GateConfig,
    LengthPenaltyConfig,
    SamplerConfig,
    TemperatureScheduleConfig,
)
from prime_cli.rl.orchestrator.admission_gates import gate_of
from prime_cli.rl.orchestrator.filters import Gibberish, Repetition, filter_of
from prime_cli.rl.orchestrator.groups import FinishedGroup, OpenGroup
from prime_cli.rl.orchestrator.length_penalty import Length, length_of, shortened
from prime_cli.rl.orchestrator.samplers import DifficultyPoolSampler, sampler_of
from prime_cli.rl.orchestrator.temperature import temperature_of
from prime_cli.rl.transport import Sample

POOLS = SamplerConfig(type="difficulty_pool").pools


def pool_sampler(count: int, seed: int = 1) -> DifficultyPoolSampler:
    return DifficultyPoolSampler(count, POOLS, seed)


def shares(sampler: DifficultyPoolSampler, draws: int = 4000) -> dict[int, float]:
    counts = Counter(sampler.next() for _ in range(draws))
    return {example: count / draws for example, count in counts.items()}


def a_group(rewards: list[float], samples: list[Sample] | None = None) -> FinishedGroup:
    rollouts = [{"reward": reward, "trajectory": []} for reward in rewards]
    return FinishedGroup(OpenGroup(1, "e", 0, len(rewards), 0), rollouts, samples or [])


def a_sample(logprobs: list[float], *, ids: list[int] | None = None, advantage: float = 1.0, **columns: Any) -> Sample:
    zeros = [0.0] * len(logprobs)
    weights = [0.0 if value == 0 else 1.0 for value in logprobs]
    given = {"rl_weights": weights, "ce_weights": zeros, **columns}
    return Sample(ids or list(range(len(logprobs))), logprobs, [advantage * weight for weight in weights], **given)


# Samplers


def test_ordered_examples_come_in_their_order_and_go_on_where_they_were() -> None:
    sampler = sampler_of(SamplerConfig(type="ordered"), 3, seed=0)
    assert [sampler.next() for _ in range(5)] == [0, 1, 2, 0, 1]
    again = sampler_of(SamplerConfig(type="ordered"), 3, seed=0)
    again.restore(json.loads(json.dumps(sampler.state())))
    assert again.next() == 2
    assert again.metrics() == {"epochs": 2.0}


def test_examples_are_drawn_by_the_weight_of_the_pool_of_their_last_mean_reward() -> None:
    sampler = pool_sampler(4)
    sampler.told(0, [0.0, 0.5])  # 0.25: hard
    sampler.told(1, [0.75, 0.75])  # normal
    sampler.told(2, [1.0, 1.0])  # easy
    drawn = shares(sampler)  # weights 0.2, 1, 0.2, and 1 for the one not seen
    assert drawn[0] == pytest.approx(0.2 / 2.4, abs=0.03)
    assert drawn[1] == pytest.approx(1.0 / 2.4, abs=0.03)
    assert drawn[2] == pytest.approx(0.2 / 2.4, abs=0.03)
    assert drawn[3] == pytest.approx(1.0 / 2.4, abs=0.03)


def test_an_example_moves_with_its_rewards_and_stays_when_every_rollout_failed() -> None:
    sampler = pool_sampler(3)
    sampler.told(1, [0.0])
    sampler.told(1, [0.5])
    sampler.told(1, [])
    sampler.told(0, [2.0])  # above every pool: the last one
    pools = {key: value for key, value in sampler.metrics().items() if key.startswith("pool_")}
    assert pools == {
        "pool_unseen": pytest.approx(1 / 3), "pool_hard": 0.0,
        "pool_normal": pytest.approx(1 / 3), "pool_easy": pytest.approx(1 / 3),
    }  # fmt: skip


def test_pools_that_weigh_nothing_are_drawn_from_when_there_is_nothing_else() -> None:
    config = SamplerConfig.model_validate(
        {"type": "difficulty_pool", "pools": {"low": {"max": 0.5, "weight": 0}, "high": {"max": 1, "weight": 1}}}
    )
    sampler = DifficultyPoolSampler(2, config.pools, seed=0)
    sampler.told(0, [0.0])
    assert set(shares(sampler, 50)) == {1}
    sampler.told(1, [0.0])
    assert set(shares(sampler, 50)) == {0, 1}


def test_a_sampler_given_the_state_of_another_draws_as_that_one_goes_on() -> None:
    first = pool_sampler(20)
    for step in range(100):
        first.told(first.next(), [step % 5 / 4])
    second = pool_sampler(20, seed=99)
    second.restore(json.loads(json.dumps(first.state())))
    for step in range(200):
        drawn = first.next()
        assert second.next() == drawn
        for sampler in (first, second):
            sampler.told(drawn, [step % 3 / 2])


# Gates


@pytest.mark.parametrize(
    ("advantages", "keys", "admitted"),
    [
        ([], {}, False),
        ([0.5, -0.5], {}, True),
        ([0.1, -0.1], {"reject_min": -0.2, "reject_max": 0.2}, False),
        ([0.1, -0.3], {"reject_min": -0.2, "reject_max": 0.2}, True),
    ],
)
def test_a_group_whose_advantages_all_lie_in_the_range_is_refused(
    advantages: list[float], keys: dict[str, float], admitted: bool
) -> None:
    group = a_group([1.0, 0.0], [a_sample([0.0, -1.0], advantage=advantage) for advantage in advantages])
    assert gate_of("g", GateConfig.model_validate(keys)).admits(group) is admitted


def test_a_group_that_teaches_by_demonstration_needs_no_advantage() -> None:
    demonstrated = a_sample([0.0, -1.0], advantage=0.0, rl_weights=[0.0, 0.0], ce_weights=[0.0, 1.0])
    assert gate_of("g", GateConfig()).admits(a_group([1.0], [demonstrated]))


@pytest.mark.parametrize(
    ("rewards", "admitted"), [([1.0, 1.0], False), ([0.0, 0.0], False), ([1.0, 0.0], True), ([], False)]
)
def test_online_difficulty_refuses_what_is_all_right_or_all_wrong(rewards: list[float], admitted: bool) -> None:
    assert gate_of("g", GateConfig(type="online_difficulty")).admits(a_group(rewards)) is admitted


# Filters


def test_gibberish_is_a_rare_token_that_was_less_likely_than_a_guess() -> None:
    gibberish = filter_of(FilterConfig(type="gibberish", token_id_threshold=10, enforce=True), vocabulary_size=100)
    assert isinstance(gibberish, Gibberish)
    assert gibberish.enforce
    bound = -math.log(100) - 2.0
    assert gibberish.catches(a_sample([-1.0, bound - 0.1], ids=[1, 11]))
    assert not gibberish.catches(a_sample([-1.0, bound + 0.1], ids=[1, 11]))
    assert not gibberish.catches(a_sample([-1.0, bound - 0.1], ids=[1, 10]))
    assert not gibberish.catches(a_sample([-1.0, bound - 0.1], ids=[1, 11], rl_weights=[1.0, 0.0]))


def test_repetition_is_a_window_of_tokens_that_were_all_but_certain() -> None:
    repetition = filter_of(FilterConfig(type="repetition", window=3), vocabulary_size=100)
    assert isinstance(repetition, Repetition)
    assert not repetition.enforce
    sure, unsure = math.log(0.995), math.log(0.98)
    assert repetition.catches(a_sample([unsure, sure, sure, sure]))
    assert not repetition.catches(a_sample([sure, sure, unsure, sure, sure]))
    assert not repetition.catches(a_sample([sure, sure]))
    said_by_a_tool = a_sample([sure, sure, 0.0, sure])
    assert not repetition.catches(said_by_a_tool)


# Temperature


@pytest.mark.parametrize(("kind", "expected"), [("linear", [1.0, 0.8, 0.6, 0.6]), ("cosine", [1.0, 0.8, 0.6, 0.6])])
def test_a_scheduled_temperature_begins_at_its_start_and_ends_at_its_end(kind: str, expected: list[float]) -> None:
    schedule = TemperatureScheduleConfig.model_validate(
        {"type": kind, "start_temperature": 1.0, "end_temperature": 0.6, "total_steps": 11}
    )
    temperature = temperature_of(SamplingConfig(temp_scheduler=schedule), max_steps=100)
    assert [temperature(step) for step in (1, 6, 11, 50)] == pytest.approx(expected)
    early = temperature(3)  # a fifth of the way: 0.2 of the fall, or (1 - cos(pi / 5)) / 2 = 0.0955 of it
    assert early == pytest.approx({"linear": 0.92, "cosine": 1.0 - 0.4 * 0.0954915}[kind])


def test_a_schedule_without_an_end_lasts_for_the_run() -> None:
    schedule = TemperatureScheduleConfig(start_temperature=0.5, end_temperature=1.5)
    temperature = temperature_of(SamplingConfig(temp_scheduler=schedule), max_steps=21)
    assert temperature(11) == pytest.approx(1.0)
    assert temperature_of(SamplingConfig(temperature=0.7), max_steps=21)(11) == 0.7


# Length


def test_long_rollouts_lose_shares_of_the_mean_reward() -> None:
    penalty = LengthPenaltyConfig(output=0.25, input=0.1, turns=0.1)
    lengths = [Length(100, 10, 1), Length(50, 20, 2)]
    # the mean is 0.5; 1 - 0.5 * (0.25 + 0.05 + 0.05), 0 - 0.5 * (0.125 + 0.1 + 0.1)
    assert shortened([1.0, 0.0], lengths, penalty) == pytest.approx([0.825, -0.1625])


def test_what_a_turn_repeats_of_the_turns_before_it_is_read_once() -> None:
    def turn(prompt: list[int], completion: list[int]) -> dict[str, Any]:
        return {"tokens": {"prompt_ids": prompt, "completion_ids": completion}}

    assert length_of([turn([1, 2], [3]), turn([1, 2, 3, 4, 5], [6])]) == Length(2, 4, 2)
    assert length_of([turn([1, 2], [3]), turn([9, 9, 9], [6, 7])]) == Length(3, 5, 2)
    assert length_of([{"tokens": None}]) == Length(0, 0, 1)
