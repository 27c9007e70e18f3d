"""A whole fine-tuning run on a data file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_causal_model
from prime_cli.rl.run_directory import read_metrics
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.run import run_sft


def a_config(tiny_model: Path, tmp_path: Path, **changes: object) -> SFTConfig:
    rng = random.Random(0)
    rows = [{"prompt": rng.choice("abcd") * 2, "completion": "yes"} for _ in range(80)]
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    values = {
        "model": tiny_model, "data": {"path": tmp_path / "data.jsonl", "num_validation": 16}, "output_dir": tmp_path,
        "max_steps": 30, "batch_size": 8, "learning_rate": 3e-3, "validation_interval": 10, "name": "run", **changes,
    }  # fmt: skip
    return SFTConfig.model_validate(values)


def test_the_loss_falls_and_the_weights_load_in_hugging_face_layout(tiny_model: Path, tmp_path: Path) -> None:
    summary = run_sft(a_config(tiny_model, tmp_path), lambda *values: None, lambda text: None)
    records, _ = read_metrics(summary.path / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, 31))
    assert records[-1]["loss/mean"] < records[0]["loss/mean"] / 5
    assert summary.validation_loss is not None
    assert summary.validation_loss < 1.0
    assert [record["step"] for record in records if "val/loss" in record] == [10, 20, 30]
    assert json.loads((summary.path / "summary.json").read_text())["steps"] == 30
    assert load_causal_model(summary.weights).config.model_type == "qwen3"


def test_the_same_seed_gives_the_same_weights(tiny_model: Path, tmp_path: Path) -> None:
    config = a_config(tiny_model, tmp_path, max_steps=5)
    first, second = (run_sft(config, lambda *values: None, lambda text: None) for _ in range(2))
    assert first.weights != second.weights
    one, two = (load_causal_model(summary.weights).state_dict() for summary in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_too_few_demonstrations_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    config = a_config(tiny_model, tmp_path, data={"path": tmp_path / "data.jsonl", "num_validation": 500})
    with pytest.raises(ConfigError, match="leave none to train on"):
        run_sft(config, lambda *values: None, lambda text: None)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_interrupted_before_its_first_weights_leaves_its_name_free(
    tiny_model: Path, tmp_path: Path
) -> None:
    def interrupt(step: int, *values: object) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sft(a_config(tiny_model, tmp_path), interrupt, lambda text: None)
    assert not (tmp_path / "run").exists()
