"""A whole fine-tuning run on a data file."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from prime_cli.core.errors import ConfigError, ProcessDied
from prime_cli.models.folder import load_causal_model
from prime_cli.rl.checkpoint import BadCheckpoint
from prime_cli.rl.run_directory import read_metrics
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.run import run_sft
from tests.documented_files import assert_documented


def a_config(tiny_model: Path, tmp_path: Path, **changes: object) -> SFTConfig:
    rng = random.Random(0)
    rows = [{"prompt": rng.choice("abcd") * 2, "completion": "yes"} for _ in range(80)]
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    values = {
        "model": tiny_model, "data": {"path": tmp_path / "data.jsonl", "num_validation": 16}, "output_dir": tmp_path,
        "max_steps": 30, "batch_size": 8, "learning_rate": 3e-3, "val": {"interval": 10}, "name": "run", **changes,
    }  # fmt: skip
    return SFTConfig.model_validate(values)


def test_the_loss_falls_and_the_weights_load_in_hugging_face_layout(tiny_model: Path, tmp_path: Path) -> None:
    summary = run_sft(a_config(tiny_model, tmp_path), ignore, ignore)
    records, _ = read_metrics(summary.path / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, 31))
    assert records[-1]["loss/mean"] < records[0]["loss/mean"] / 5
    assert summary.validation_loss is not None
    assert summary.validation_loss < 1.0
    assert [record["step"] for record in records if "val/loss" in record] == [10, 20, 30]
    assert json.loads((summary.path / "summary.json").read_text())["steps"] == 30
    assert "checkpoints/step_*/order.json" in assert_documented(summary.path, "A training run", "A checkpoint")
    assert load_causal_model(summary.weights).config.model_type == "qwen3"


def test_the_same_seed_gives_the_same_weights(tiny_model: Path, tmp_path: Path) -> None:
    config = a_config(tiny_model, tmp_path, max_steps=5)
    first, second = (run_sft(config, ignore, ignore) for _ in range(2))
    assert first.weights != second.weights
    one, two = (load_causal_model(summary.weights).state_dict() for summary in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_too_few_demonstrations_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    config = a_config(tiny_model, tmp_path, data={"path": tmp_path / "data.jsonl", "num_validation": 500})
    with pytest.raises(ConfigError, match="leave none to train on"):
        run_sft(config, ignore, ignore)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_interrupted_before_its_first_weights_leaves_its_name_free(
    tiny_model: Path, tmp_path: Path
) -> None:
    def interrupt(record: Mapping[str, Any]) -> None:
        if record["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sft(a_config(tiny_model, tmp_path), interrupt, ignore)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_ranks_learn_the_same_as_one(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    summaries = [
        run_sft(a_config(tiny_model, tmp_path, max_steps=3, trainer={"ranks": ranks}), ignore, said.append)
        for ranks in (1, 2)
    ]
    one, two = (load_causal_model(summary.weights).state_dict() for summary in summaries)
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)
    assert said.count("64 demonstrations; loading the model") == 2


@pytest.mark.slow
def test_a_mistake_in_the_data_is_told_by_several_ranks_as_by_one(tiny_model: Path, tmp_path: Path) -> None:
    config = a_config(tiny_model, tmp_path, trainer={"ranks": 2}, data={"path": tmp_path / "none.jsonl"})
    with pytest.raises(ProcessDied, match="no such data file"):
        run_sft(config, ignore, ignore)


def test_rows_are_filled_and_cut_demonstrations_are_told(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    config = a_config(
        tiny_model, tmp_path, max_steps=2, batch_rows=2, trainer={"seq_len": 8},
        val={"data": {"path": tmp_path / "data.jsonl"}, "eval_on_start": True}, data={"path": tmp_path / "data.jsonl"},
    )  # fmt: skip
    summary = run_sft(config, ignore, said.append)
    records, _ = read_metrics(summary.path / "metrics.jsonl")
    assert [record["step"] for record in records if "val/loss" in record] == [0, 2]
    assert all(record["progress/tokens"] <= 16 for record in records[1:])
    assert any("longer than trainer.seq_len 8 and cut there" in text for text in said)


@pytest.mark.parametrize("ends_at", [3, 5])
def test_a_run_that_was_stopped_goes_on_and_ends_bit_for_bit_where_one_that_was_not_does(
    tiny_model: Path, tmp_path: Path, ends_at: int
) -> None:
    changes = {"max_steps": 6, "checkpoints": {"interval": 2}, "trainer": {"lora": {"rank": 4, "dropout": 0.1}}}
    straight = run_sft(a_config(tiny_model, tmp_path, **changes, name="straight"), ignore, ignore)
    config = a_config(tiny_model, tmp_path, **changes)

    def interrupt(record: Mapping[str, Any]) -> None:
        if record["step"] == ends_at:
            raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_sft(config, interrupt, said.append)
    done = ends_at // 2 * 2
    assert f"`prime sft run CONFIG --resume` goes on from step {done}" in said[-1]
    summary = run_sft(config, ignore, said.append, resume="latest")
    one, two = (load_causal_model(finished.weights).state_dict() for finished in (straight, summary))
    assert all(torch.equal(one[name], two[name]) for name in one)
    losses = [
        [record["loss/mean"] for record in read_metrics(finished.path / "metrics.jsonl")[0]]
        for finished in (straight, summary)
    ]
    assert losses[0] == losses[1]


def test_a_checkpoint_is_bound_to_its_data_and_one_of_another_kind_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    summary = run_sft(a_config(tiny_model, tmp_path, max_steps=2), ignore, ignore)
    changed = a_config(tiny_model, tmp_path, max_steps=4, data={"path": tmp_path / "data.jsonl", "num_validation": 8})
    with pytest.raises(ConfigError, match=r"cannot go on with another data\.num_validation"):
        run_sft(changed, ignore, ignore, resume="latest")
    (summary.path / "checkpoints" / "step_2" / "order.json").rename(tmp_path / "order.json")
    with pytest.raises(BadCheckpoint):
        run_sft(a_config(tiny_model, tmp_path, max_steps=4), ignore, ignore, resume="latest")


def test_a_run_may_begin_with_the_weights_of_another(tiny_model: Path, tmp_path: Path) -> None:
    first = run_sft(a_config(tiny_model, tmp_path, max_steps=20), ignore, ignore)
    again = a_config(tiny_model, tmp_path, max_steps=1, name="again", checkpoint_id="run", learning_rate=1e-9)
    second = run_sft(again, ignore, ignore)
    assert second.validation_loss == pytest.approx(first.validation_loss, abs=1e-4)


def ignore(said: object) -> None:
    """Hear and see nothing."""
