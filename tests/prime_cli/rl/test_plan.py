"""What a run would do, said before it does it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_causal_model
from prime_cli.rl.config import RLConfig
from prime_cli.rl.plan import check_devices, plan_of
from prime_cli.rl.planned_work import planned_work, work_lines
from prime_cli.rl.step_config import LoraConfig
from prime_cli.rl.trainer import lora


def a_config(model: Path, **values: Any) -> RLConfig:
    return RLConfig.model_validate({"model": str(model), "env": [{"id": "e"}], **values})


def test_parameters_are_counted_from_the_files_alone(tiny_model: Path) -> None:
    model = load_causal_model(tiny_model)
    count = sum(parameter.numel() for parameter in model.parameters())
    plan = plan_of(a_config(tiny_model), gpus=0)
    assert plan.parameters == plan.trained_parameters == count
    assert plan.memory_per_rank.weights == plan.memory_per_rank.gradients == 4 * count
    assert plan.memory_per_rank.optimizer == 8 * count
    lora.put_on(model, LoraConfig(rank=4))
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert plan_of(a_config(tiny_model, trainer={"lora": {"rank": 4}}), gpus=0).trained_parameters == trained


def test_a_step_is_counted_in_prompts_rollouts_and_tokens(tiny_model: Path) -> None:
    config = a_config(tiny_model, batch_size=32, trainer={"seq_len": 1024, "micro_batch_tokens": 10_000})
    plan = plan_of(config, gpus=0)
    assert (plan.prompts_per_step, plan.rollouts_per_step, plan.tokens_per_step, plan.rows_per_step) == (
        4,
        32,
        32768,
        4,
    )


def test_ranks_share_what_can_be_shared(tiny_model: Path) -> None:
    one, two = (plan_of(a_config(tiny_model, trainer={"ranks": ranks}), gpus=0) for ranks in (1, 2))
    assert two.memory_per_rank.weights == one.memory_per_rank.weights // 2
    assert two.memory_per_rank.activations == one.memory_per_rank.activations
    assert [(p.name, p.count) for p in two.processes] == [
        ("inference", 1), ("trainer", 2), ("orchestrator", 1), ("environment worker", 2)
    ]  # fmt: skip


def test_more_ranks_than_gpus_are_refused(tiny_model: Path) -> None:
    config = a_config(tiny_model, trainer={"ranks": 2})
    check_devices(config.trainer.ranks, gpus=0)
    check_devices(config.trainer.ranks, gpus=2)
    with pytest.raises(ConfigError, match="this machine has 1 GPU"):
        check_devices(config.trainer.ranks, gpus=1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"trainer": {"lora": {"dropout": 0.1}}}, "`trainer.lora.dropout`: would train on other"),
        (
            {
                "teacher": {
                    "model": "t",
                    "sampling": {"temp_scheduler": {"start_temperature": 1, "end_temperature": 2}},
                },
                "orchestrator": {"algo": {"type": "sft"}},
            },
            "a teacher has one temperature",
        ),
        ({"env": [{"id": "e", "sampling": {"max_tokens": 5000}}]}, "`env[0].sampling.max_tokens`: 5000 leaves no room"),
        (
            {"sampling": {"temperature": 0.5, "temp_scheduler": {"start_temperature": 1, "end_temperature": 2}}},
            "`temperature` and `temp_scheduler` exclude each other",
        ),
        ({"oversampling_factor": 2, "orchestrator": {"concurrency": {"type": "adaptive"}}}, "bounds a static number"),
        ({"orchestrator": {"max_off_policy_steps": 0, "concurrency": {"type": "adaptive"}}}, "nothing but its seed"),
        ({"orchestrator": {"concurrency": {"min_inflight": 5}}}, "`min_inflight` belongs to type `adaptive`"),
        (
            {"orchestrator": {"algo": {"type": "opd"}, "curriculum": {"gates": {"g": {}}}}, "teacher": {"model": "t"}},
            "looks at advantages, and `opd` has none",
        ),
        (
            {"orchestrator": {"algo": {"type": "max_rl", "length_penalty": {}}}},
            "`length_penalty` belongs to type `grpo`",
        ),
        ({"pre_batch_filters": [{"type": "repetition", "token_id_threshold": 5}]}, "belongs to type `gibberish`"),
        ({"checkpoints": {"keep_best": "eval/e/reward/mean"}, "val": {}}, "there is no [eval]"),
        ({"trainer": {"ranks": 200}}, "200 ranks share 128 rollouts"),
        ({"max_steps": 5, "trainer": {"scheduler": {"decay_steps": 6}}}, "more than max_steps"),
        ({"trainer": {"scheduler": {"min_lr": 1.0}}}, "above learning_rate"),
        ({"trainer": {"scheduler": {"type": "cosine", "decay_steps": 3}}}, "`decay_steps` belongs to type `linear`"),
        ({"trainer": {"optim": {"momentum": 0.5}}}, "`momentum` belongs to type `sgd` and `muon`"),
    ],
)
def test_combinations_that_cannot_work_are_refused_with_the_reason(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as refused:
        a_config(Path("m"), **values)
    assert says in str(refused.value)


def test_a_dry_run_prints_the_resolved_configuration_and_the_plan_and_writes_nothing(
    tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(f'model = "{tiny_model}"\n[[env]]\nid = "reverse-text"\n')
    command = [sys.executable, "-m", "prime_cli.main", "--output", "json", "rl", "run", "run.toml", "--dry-run"]
    done = subprocess.run(
        [*command, "--trainer.optim.type", "muon", "--max-steps", "3"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["config"]["trainer"]["optim"]["type"] == "muon"
    assert shown["plan"]["steps"] == 3
    assert shown["plan"]["work"]["environments"][0]["share"] == 1.0
    (warning,) = shown["warnings"]
    assert "warmup_steps` 10 are not over at max_steps 3" in warning
    assert shown["engine"] == "embedded"
    assert not (tmp_path / "outputs").exists()


def test_what_is_opened_and_evaluated_is_said_environment_by_environment() -> None:
    config = a_config(
        Path("m"),
        env=[{"id": "one", "ratio": 3}, {"id": "o/two@1.0", "group_size": 4, "algo": {"type": "max_rl"}, "workers": 1}],
        max_steps=25,
        orchestrator={"curriculum": {"gates": {"mixed": {}}, "sampler": {"type": "ordered"}}},
        sampling={"temp_scheduler": {"start_temperature": 1.0, "end_temperature": 0.5}},
        eval={"interval": 10, "rollouts_per_example": 2, "skip_first_step": True, "env": [{"id": "x", "interval": 5}]},
        val={"num_examples": 7, "interval": 20},
    )
    assert work_lines(planned_work(config, checkpoint_bytes=3 * 2**20)) == [
        "environment one: 75% of the groups, 8 rollouts each, grpo, examples ordered, gates mixed",
        "environment two: 25% of the groups, 4 rollouts each, max_rl, examples ordered, gates mixed",
        "in flight: at most 256 rollouts; temperature 1 to 0.5",
        "evaluation val/one: 3 times 7 examples, 1 rollout each",
        "evaluation val/two: 3 times 7 examples, 1 rollout each",
        "evaluation x: 5 times all examples, 2 rollouts each",
        "checkpoints: 2 written, 2 kept, of about 3 MiB each with its weights",
    ]
