"""Lab files: what hosted training calls otherwise, or what does nothing on one's own machine."""

from __future__ import annotations

from typing import Any

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.resolve import ResolvedRun, resolve

BASE: dict[str, Any] = {"model": "m", "env": [{"id": "e"}]}


def resolved(**values: Any) -> ResolvedRun:
    return resolve({**BASE, **values}, source="run.toml")


def refusal(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(**values)
    return caught.value.message


def test_a_file_without_anything_special_is_read_without_a_warning() -> None:
    run = resolved()
    assert run.warnings == []
    assert run.config == RLConfig.model_validate(BASE)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"cluster_name": "c"}, "cluster_name"),
        ({"infrastructure": {"compute_size": "M"}}, "infrastructure"),
        ({"tailscale": {"enabled": True}}, "tailscale"),
        ({"run_config": {"a": 1}}, "run_config"),
        ({"checkpoints": {"interval": 5, "keep_cloud": 2}}, "checkpoints.keep_cloud"),
        ({"trajectory_strategy": "interleaved"}, "trajectory_strategy"),
        ({"buffer": {"easy_threshold": 1.0}}, "buffer"),
        ({"max_async_level": 2}, "max_async_level"),
        ({"env": [{"id": "e", "harness": {"id": "h"}}]}, "env[0].harness"),
        ({"env": [{"id": "e", "pool": {"workers": 2}}]}, "env[0].pool"),
        ({"env": [{"id": "e", "multiplex": 2}]}, "env[0].multiplex"),
    ],
)
def test_what_does_nothing_here_is_said_in_one_line(values: dict[str, Any], key: str) -> None:
    (warning,) = resolved(**values).warnings
    assert warning.startswith(f"`{key}` does nothing here: ")
    assert "\n" not in warning


def test_lora_alpha_asks_for_adapters_at_their_own_rate() -> None:
    config = resolved(lora_alpha=16).config
    assert config.trainer.lora is not None
    assert (config.trainer.lora.alpha, config.learning_rate) == (16, 1e-4)
    assert resolved(lora_alpha=16, learning_rate=1e-3).config.learning_rate == 1e-3
    assert resolved().config.learning_rate == 1e-5


def test_two_names_of_one_key_that_differ_are_refused() -> None:
    text = refusal(lora_alpha=16, trainer={"lora": {"alpha": 8}})
    assert "`lora_alpha` is 16 and `trainer.lora.alpha` is 8; give one of them" in text
    assert resolved(lora_alpha=8, trainer={"lora": {"alpha": 8}}).warnings == []


def test_a_full_fine_tune_trains_no_adapters() -> None:
    assert resolved(type="full_finetune").config.trainer.lora is None
    assert "asks for adapters" in refusal(type="full_finetune", lora_alpha=16)
    assert "full_finetune or left out" in refusal(type="lora")


def test_max_off_policy_steps_moved_to_the_orchestrator() -> None:
    run = resolved(max_off_policy_steps=4)
    assert run.config.orchestrator.max_off_policy_steps == 4
    assert "belongs under [orchestrator]" in run.warnings[0]


def test_loss_chooses_the_algorithm() -> None:
    run = resolved(loss="sft", teacher={"model": "t"})
    assert run.config.orchestrator.algo.type == "sft"
    assert resolved(loss="rl").config.orchestrator.algo.type == "grpo"
    assert "`loss`: `sft` learns from a teacher" in refusal(loss="sft")
    assert "trainer.loss.type" in refusal(loss="dppo")


def test_env_file_becomes_the_first_of_env_files() -> None:
    run = resolved(env_file="a.env", env_files=["b.env"])
    assert [str(path) for path in run.config.env_files] == ["a.env", "b.env"]
    assert "now called `env_files`" in run.warnings[0]


def test_a_task_set_is_an_environment_with_its_arguments() -> None:
    (environment,) = resolved(env=[{"taskset": {"id": "o/n@1.2.3", "size": 3}, "args": {"seed": 1}}]).config.env
    assert environment.id == "o/n@1.2.3"
    assert environment.args == {"seed": 1, "size": 3}


@pytest.mark.parametrize("given", [{"enable_thinking": False}, {"reasoning_effort": "low"}])
def test_how_much_to_think_is_told_to_the_chat_template(given: dict[str, Any]) -> None:
    sampling = resolved(sampling={**given, "extra_body": {"n": 1, "chat_template_kwargs": {"x": 2}}}).config.sampling
    assert sampling.extra_body == {"n": 1, "chat_template_kwargs": {"x": 2, **given}}


def test_thinking_and_effort_exclude_each_other() -> None:
    assert "exclude each other" in refusal(sampling={"enable_thinking": True, "reasoning_effort": "low"})


def test_everything_that_is_wrong_is_listed_at_once_with_the_users_own_keys() -> None:
    text = refusal(
        loss="sft", max_off_policy_steps=-1, batch_size=100, rollouts_per_example=16, typo=1, sampling={"max_tokens": 0}
    )
    assert text.startswith("run.toml: 3 problems")
    assert "`max_off_policy_steps`: " in text
    assert "`typo` is not a known key" in text
    assert "`sampling.max_tokens`: " in text
    both = refusal(loss="sft", batch_size=100, rollouts_per_example=16)
    assert both.startswith("run.toml: 2 problems")
    assert "`batch_size`: 100 is not a multiple" in both
    assert "`loss`: `sft` learns from a teacher" in both
