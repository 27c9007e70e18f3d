"""Checkpoints of a trainer: what goes in comes out, bit for bit, and what is torn or foreign is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from prime_cli.models.tiny_qwen3 import write_model
from prime_cli.rl.checkpoint import BadCheckpoint, check_checkpoint, read_checkpoint, write_checkpoint
from prime_cli.rl.checkpoint_config import steps_to_drop
from prime_cli.rl.trainer.learner import Learner
from tests.prime_cli.rl.learners import a_learner, random_samples


def train(learner: Learner, first: int, last: int) -> None:
    for step in range(first, last + 1):
        learner.step(random_samples(6, seed=step))


def everything(learner: Learner) -> dict[str, torch.Tensor]:
    state = learner.state()
    return {name: tensor.clone() for name, tensor in {**state.parameters, **state.optimizer}.items()}


@pytest.mark.parametrize(
    "config",
    [
        {"optim": {"type": "adamw", "weight_decay": 0.1}, "scheduler": {"type": "cosine", "warmup_steps": 2}},
        {"optim": {"type": "sgd"}},
        {"optim": {"type": "muon"}},
        {"lora": {"rank": 4, "dropout": 0.2}},
    ],
    ids=["adamw", "sgd", "muon", "lora"],
)
def test_a_learner_that_goes_on_from_a_checkpoint_ends_where_one_that_never_stopped_does(
    config: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    straight = a_learner(tiny_model, **config)
    train(straight, 1, 2)
    write_checkpoint(tmp_path / "step_2", straight.state(), step=2)
    train(straight, 3, 4)
    resumed = a_learner(tiny_model, **config)
    resumed.restore(tmp_path / "step_2")
    train(resumed, 3, 4)
    expected, actual = everything(straight), everything(resumed)
    assert expected.keys() == actual.keys()
    assert [name for name in expected if not torch.equal(expected[name], actual[name])] == []


def test_a_warm_start_takes_the_weights_and_nothing_else(tiny_model: Path, tmp_path: Path) -> None:
    old = a_learner(tiny_model)
    train(old, 1, 2)
    write_checkpoint(tmp_path / "step_2", old.state(), step=2)
    new = a_learner(tiny_model)
    new.warm_start(tmp_path / "step_2")
    state = new.state()
    assert state.steps_taken == 0
    assert all(torch.equal(tensor, old.state().parameters[name]) for name, tensor in state.parameters.items())
    assert not [name for name in state.optimizer if "exp_avg" in name]


@pytest.fixture
def checkpoint(tiny_model: Path, tmp_path: Path) -> Path:
    learner = a_learner(tiny_model)
    train(learner, 1, 1)
    write_checkpoint(tmp_path / "step_1", learner.state(), step=1, beside={"orchestrator.json": b"{}"})
    return tmp_path / "step_1"


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="is no checkpoint"):
        check_checkpoint(tmp_path)


@pytest.mark.parametrize("file", ["parameters.safetensors", "optimizer.safetensors", "orchestrator.json"])
def test_a_checkpoint_with_a_file_cut_short_or_missing_is_refused(checkpoint: Path, file: str) -> None:
    whole = (checkpoint / file).read_bytes()
    (checkpoint / file).write_bytes(whole[:-1])
    with pytest.raises(BadCheckpoint, match=f"torn: {file} has {len(whole) - 1} bytes of {len(whole)}"):
        check_checkpoint(checkpoint)
    (checkpoint / file).unlink()
    with pytest.raises(BadCheckpoint, match=f"torn: {file} is missing"):
        read_checkpoint(checkpoint)


def test_a_checkpoint_of_another_format_is_refused(checkpoint: Path) -> None:
    about = json.loads((checkpoint / "checkpoint.json").read_text())
    (checkpoint / "checkpoint.json").write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(BadCheckpoint, match="format"):
        read_checkpoint(checkpoint)


def test_a_checkpoint_of_another_model_adapter_or_optimizer_is_refused(
    checkpoint: Path, tiny_model: Path, tmp_path: Path
) -> None:
    write_model("small-qwen3", tmp_path / "small")
    with pytest.raises(BadCheckpoint, match="is not of this model"):
        a_learner(tmp_path / "small").restore(checkpoint)
    with pytest.raises(BadCheckpoint, match="is not of this model"):
        a_learner(tiny_model, lora={"rank": 4}).restore(checkpoint)
    with pytest.raises(BadCheckpoint, match="of another optimizer"):
        a_learner(tiny_model, optim={"type": "sgd"}).restore(checkpoint)


def test_checkpoints_that_no_rule_keeps_are_dropped() -> None:
    steps = [10, 20, 30, 40, 50]
    assert steps_to_drop(steps, keep_last=2) == [10, 20, 30]
    assert steps_to_drop(steps, keep_last=1, keep_interval=20) == [10, 30]
    assert steps_to_drop(steps, keep_last=1, best=10) == [20, 30, 40]
    assert steps_to_drop(steps, keep_last=0) == []
