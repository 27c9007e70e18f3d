"""What each algorithm makes of the same kind of rollouts, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.config_file import validate_config
from prime_cli.core.errors import ConfigError
from prime_cli.rl.algorithm_config import AlgorithmConfig
from prime_cli.rl.config import RLConfig
from prime_cli.rl.orchestrator.algorithms import (
    Algorithm,
    Distillation,
    Echo,
    GroupMean,
    MaximumLikelihood,
    OnPolicyDistillation,
    RewardAlgorithm,
    RunningBaseline,
    algorithm_of,
)


def turn(prompt: list[int], completion: list[int], messages: list[dict[str, str]] | None = None) -> dict[str, Any]:
    count = len(completion)
    tokens = {
        "prompt_ids": prompt, "completion_ids": completion, "completion_mask": [1] * count,
        "completion_logprobs": [-0.5] * count,
    }  # fmt: skip
    return {"tokens": tokens, "prompt": messages or [], "completion": [{"role": "assistant", "content": "x"}]}


def rollout(reward: float, **more: Any) -> dict[str, Any]:
    return {"reward": reward, "trajectory": [turn([1], [2, 3])], **more}


def advantages(algorithm: RewardAlgorithm, rewards: Sequence[float]) -> list[float]:
    return algorithm.advantages([rollout(reward) for reward in rewards])


def test_grpo_takes_the_mean_of_the_group_away() -> None:
    assert advantages(GroupMean(), [1.0, 0.0, 0.5]) == [0.5, -0.5, 0.0]


def test_equal_rewards_have_no_advantage_however_their_mean_is_rounded() -> None:
    assert sum([0.1] * 3) / 3 != 0.1
    assert advantages(GroupMean(), [0.1] * 3) == [0.0] * 3
    assert advantages(MaximumLikelihood(), [0.1] * 3) == [0.0] * 3


def test_a_length_penalty_gives_the_shorter_of_two_right_answers_the_advantage() -> None:
    algorithm = algorithm_of(AlgorithmConfig.model_validate({"length_penalty": {"input": 0.0, "turns": 0.0}}))
    assert isinstance(algorithm, GroupMean)
    rollouts = [{"reward": 1.0, "trajectory": [turn([1], [2] * count)]} for count in (4, 2)]
    # 1 - 0.25 and 1 - 0.125, their mean taken away
    assert algorithm.advantages(rollouts) == [-0.0625, 0.0625]
    assert GroupMean().advantages(rollouts) == [0.0, 0.0]


def test_max_rl_weighs_success_by_how_rare_it_is() -> None:
    assert advantages(MaximumLikelihood(), [1.0, 0.0, 0.0, 0.0]) == [3.0, -1.0, -1.0, -1.0]
    assert advantages(MaximumLikelihood(), [1.0, 1.0, 0.0, 0.0]) == [1.0, 1.0, -1.0, -1.0]


def test_max_rl_learns_nothing_where_the_mean_is_not_positive() -> None:
    assert advantages(MaximumLikelihood(), [0.0, 0.0]) == [0.0, 0.0]
    assert advantages(MaximumLikelihood(), [-1.0, 0.5]) == [0.0, 0.0]


def test_rae_compares_with_a_running_mean_of_each_agent() -> None:
    algorithm = RunningBaseline(decay=0.5)
    rollouts = [rollout(1.0, agent="white"), rollout(-1.0, agent="black"), rollout(1.0, agent="white")]
    assert algorithm.advantages(rollouts) == [1.0, -1.0, 0.5]
    assert algorithm.advantages([rollout(0.0, agent="white")]) == [-0.75]


async def test_rollouts_without_an_advantage_are_left_out() -> None:
    samples = await GroupMean().samples([rollout(1.0), rollout(0.0), rollout(0.5)], temperature=0.7)
    assert [sample.advantages for sample in samples] == [[0, 0.5, 0.5], [0, -0.5, -0.5]]
    assert samples[0].rl_weights == [0, 1, 1]
    assert samples[0].temperature == 0.7


async def test_on_policy_distillation_asks_the_teacher_about_every_sampled_token() -> None:
    async def score(token_ids: Sequence[int]) -> list[float]:
        return [-float(token) for token in token_ids]

    samples = await OnPolicyDistillation(score).samples([rollout(0.0), rollout(0.0)], temperature=1.0)
    assert len(samples) == 2
    assert samples[0].ref_logprobs == [-1, -2, -3]
    assert samples[0].ref_kl_weights == [0, 1, 1]
    assert samples[0].rl_weights == samples[0].ce_weights == [0, 0, 0]


async def test_tokens_that_the_teacher_did_not_judge_carry_no_weight() -> None:
    async def score(token_ids: Sequence[int]) -> list[float]:
        return [0.0, -2.0]

    (sample,) = await OnPolicyDistillation(score).samples([rollout(0.0)], temperature=1.0)
    assert sample.ref_kl_weights == [0, 1, 0]
    assert sample.ref_logprobs == [0, -2, 0]


async def test_distillation_makes_demonstrations_of_what_the_teacher_sampled() -> None:
    (sample,) = await Distillation().samples([rollout(0.0)], temperature=0.5)
    assert sample.ce_weights == [0, 1, 1]
    assert sample.rl_weights == [0, 0, 0]
    assert sample.temperature == 1.0


def two_turns(reward: float) -> dict[str, Any]:
    """The model says 3; the tool answers "ab" between the markers 7 and 8; the user adds "c"; the model says 4."""
    first = [{"role": "user", "content": "c"}]
    second = [*first, {"role": "assistant", "content": "x"}, {"role": "tool", "content": "ab"}, first[0]]
    prompt = [1, 3, 7, 97, 98, 8, 7, 99, 8]
    return {"reward": reward, "trajectory": [turn([1], [3], first), turn(prompt, [4], second)]}


async def test_echo_learns_the_words_of_the_environment_too() -> None:
    algorithm = Echo({"tool": 0.1}, lambda text: list(text.encode()))
    good, bad = await algorithm.samples([two_turns(1.0), two_turns(0.0)], temperature=1.0)
    assert good.token_ids == [1, 3, 7, 97, 98, 8, 7, 99, 8, 4]
    assert good.ce_weights == [0, 0, 0, 0.1, 0.1, 0, 0, 0, 0, 0]
    assert good.rl_weights == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert bad.advantages[-1] == -0.5


async def test_echo_weighs_each_role_by_its_own_and_keeps_groups_without_an_advantage() -> None:
    algorithm = Echo({"tool": 0.1, "user": 0.2}, lambda text: list(text.encode()))
    samples = await algorithm.samples([two_turns(1.0), two_turns(1.0)], temperature=1.0)
    assert len(samples) == 2
    assert samples[0].ce_weights == [0, 0, 0, 0.1, 0.1, 0, 0, 0.2, 0, 0]
    assert not any(samples[0].rl_weights)


async def test_echo_leaves_out_what_teaches_nothing() -> None:
    algorithm = Echo({"tool": 0.1}, lambda text: list(text.encode()))
    assert await algorithm.samples([rollout(1.0), rollout(1.0)], temperature=1.0) == []


@pytest.mark.parametrize(
    ("kind", "made"),
    [("grpo", GroupMean), ("max_rl", MaximumLikelihood), ("rae", RunningBaseline), ("sft", Distillation)],
)
def test_the_configuration_names_the_algorithm(kind: str, made: type[Algorithm]) -> None:
    assert isinstance(algorithm_of(AlgorithmConfig.model_validate({"type": kind})), made)


def a_config(**values: Any) -> RLConfig:
    return validate_config({"model": "m", "env": [{"id": "e"}], **values}, RLConfig, source="run.toml")


def test_an_environment_may_have_an_algorithm_of_its_own() -> None:
    config = a_config(
        env=[{"id": "e", "algo": {"type": "rae"}}], orchestrator={"algo": {"type": "max_rl"}}, rollouts_per_example=1
    )
    assert config.algorithm_for(config.env[0]).type == "rae"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rollouts_per_example": 1}, "`grpo` compares a rollout with the others of its group"),
        ({"orchestrator": {"algo": {"type": "max_rl"}}, "rollouts_per_example": 1}, "`max_rl` compares"),
        ({"orchestrator": {"algo": {"type": "opd"}}}, "`opd` learns from a teacher; add [teacher]"),
        ({"teacher": {"model": "t"}}, "no algorithm learns from one"),
        ({"orchestrator": {"algo": {"rae_decay": 0.5}}}, "`rae_decay` belongs to type `rae`"),
        ({"sampling": {"top_p": 0.9}}, "`top_p` would cut the distribution"),
        ({"sampling": {"extra_body": {"top_k": 20, "min_p": 0.1}}}, "`top_k` and `min_p` would cut"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_read(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        a_config(**values)
    assert says in refused.value.message


def test_distillation_needs_no_group(tmp_path: Path) -> None:
    config = a_config(
        orchestrator={"algo": {"type": "opd"}}, teacher={"model": "t"}, rollouts_per_example=1, batch_size=3
    )
    assert config.groups_per_batch == 3
