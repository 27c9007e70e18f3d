"""Lab files: what hosted training calls otherwise, or what does nothing on one's own machine."""

from __future__ import annotations

import tomllib
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
        (
            {
                "loss": "sft",
                "teacher": {"model": "t", "client": {"base_url": "http://t/v1", "skip_model_check": False}},
            },
            "teacher.client.skip_model_check",
        ),
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


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"post_batch_filters": [{"type": "zero_advantage", "enforce": False}]}, "is not sent all the same"),
        ({"max_steps": 5}, "the learning rate never gets to what was asked for"),
        (
            {"sampling": {"temp_scheduler": {"start_temperature": 1, "end_temperature": 0.5, "total_steps": 200}}},
            "the temperature never gets to 0.5",
        ),
        ({"inference": {"engine": "embedded", "vllm_args": {"swap_space": 4}}}, "the engine is the embedded one"),
        ({"adapters": {"interval": 5}}, "all weights are trained"),
        ({"env": [{"id": "e", "max_total_tokens": 5000}]}, "is cut before it is trained on"),
        (
            {"loss": "opd", "teacher": {"model": "t"}, "sampling": {"temperature": 0.7}},
            "makes the policy at that temperature like the teacher at 1",
        ),
    ],
)
def test_what_a_reader_would_not_expect_is_remarked_upon(values: dict[str, Any], says: str) -> None:
    (warning,) = resolved(**values).warnings
    assert says in warning


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


LAB_FILE = """
name = "everything"
model = "m"
loss = "sft"
max_steps = 100
batch_size = 128
rollouts_per_example = 8
max_inflight_rollouts = 256
learning_rate = 1e-4
lora_alpha = 16
cluster_name = "c"
checkpoint_id = "earlier@40"
env_files = ["secrets.env"]
run_config = { anything = { goes = true } }
trajectory_strategy = "interleaved"
[[env]]
id = "owner/name@1.2.3"
name = "first"
args = { size = 3 }
ratio = 2.0
group_size = 4
max_turns = 3
max_input_tokens = 500
max_output_tokens = 500
max_total_tokens = 1000
timeout = 60
retries = 1
sampling = { temperature = 0.8 }
harness = { id = "h" }
pool = { workers = 2 }
multiplex = 4
[[env]]
taskset = { id = "owner/other", split = "train" }
version = "2.0.0"
max_retries = 2
[sampling]
max_tokens = 512
extra_body = { repetition_penalty = 1.0 }
reasoning_effort = "low"
temp_scheduler = { type = "linear", start_temperature = 1.0, end_temperature = 0.7, total_steps = 50 }
[eval]
interval = 20
num_examples = -1
rollouts_per_example = 2
eval_base_model = false
sampling = { temperature = 0.0 }
[[eval.env]]
id = "owner/name"
num_examples = 10
rollouts_per_example = 1
interval = 40
[val]
num_examples = 16
rollouts_per_example = 1
interval = 25
[[pre_batch_filters]]
type = "zero_advantage"
enforce = true
[[post_batch_filters]]
type = "gibberish"
enforce = false
token_id_threshold = 100000
logprob_offset = 2.0
[checkpoints]
interval = 50
keep_cloud = 3
[adapters]
interval = 10
keep_last = 5
[wandb]
entity = "e"
project = "p"
name = "n"
[infrastructure]
compute_size = "M"
[tailscale]
enabled = true
auth_key = "tskey-auth-x"
hostname_prefix = "p"
[buffer]
easy_threshold = 1.0
[teacher]
model = "big"
client = { base_url = "http://t/v1", api_key_var = "K", headers_from_env = { X-Team = "T" }, skip_model_check = true }
sampling = { max_tokens = 100, temperature = 0.7, extra_body = {}, enable_thinking = false }
"""


def test_every_key_of_a_lab_file_is_read_or_warned_about() -> None:
    run = resolve(tomllib.loads(LAB_FILE), source="run.toml")
    named = [warning.split("`")[1] for warning in run.warnings]
    assert sorted(named) == sorted([
        "cluster_name", "run_config", "infrastructure", "tailscale", "trajectory_strategy", "buffer",
        "checkpoints.keep_cloud", "teacher.client.skip_model_check", "eval.eval_base_model",
        "env[0].harness", "env[0].pool", "env[0].multiplex",
    ])  # fmt: skip
    config = run.config
    assert config.orchestrator.algo.type == "sft"
    assert config.eval is not None
    assert config.eval.skip_first_step
    assert [environment.reference for environment in config.env] == ["owner/name@1.2.3", "owner/other@2.0.0"]
    assert [environment.retries for environment in config.env] == [1, 2]
    assert config.sampling_for(config.env[0]).temperature == 0.8
    assert config.sampling_for(config.env[0]).temp_scheduler is None
    assert RLConfig.model_validate_json(config.model_dump_json()) == config
