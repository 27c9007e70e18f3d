"""Keys of fine-tuning, under our names and others'."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from prime_cli.sft.config import SFTConfig
from prime_cli.sft.other_names import notes_on

BASE: dict[str, Any] = {"model": "m", "data": {"path": "a.jsonl"}}


def config(**changes: Any) -> SFTConfig:
    return SFTConfig.model_validate({**BASE, **changes})


def test_a_file_of_prime_rl_means_what_it_meant_there() -> None:
    tables = {
        "model": {"name": "models/tiny", "lora": {"rank": 4}},
        "data": {"name": "org/set", "subsets": ["a", "b"], "splits": ["train", "test"], "batch_size": 8, "seq_len": 512,
                 "micro_batch_size": 2, "num_workers": 1, "probabilities": [0.25, 0.75], "loss_mask": {"tool": True}},
        "optim": {"lr": 3e-4, "betas2": 0.95, "weight_decay": 0.1},
        "scheduler": {"type": "cosine"},
        "ckpt": {"interval": 5},
        "val": {"interval": 7, "eval_on_start": True},
    }  # fmt: skip
    settings = SFTConfig.model_validate(tables)
    assert str(settings.model) == "models/tiny"
    assert settings.trainer.lora is not None
    assert settings.trainer.lora.rank == 4
    assert (settings.batch_rows, settings.trainer.seq_len, settings.trainer.micro_batch_tokens) == (8, 512, 1024)
    assert (settings.learning_rate, settings.trainer.optim.betas) == (3e-4, (0.9, 0.95))
    assert settings.trainer.scheduler.type == "cosine"
    assert (settings.checkpoints.interval, settings.val.interval, settings.val.eval_on_start) == (5, 7, True)
    sources = settings.data.sources
    assert [(s.subset, s.split, s.probability) for s in sources] == [("a", "train", 0.25), ("b", "test", 0.75)]
    assert settings.data.loss_mask.roles == {"assistant", "tool"}
    assert notes_on(tables) == ["`data.num_workers` does nothing: demonstrations are read once, before the first step"]


def test_what_is_resolved_reads_the_same_again() -> None:
    settings = config(batch_rows=4, val={"data": {"path": "b.jsonl"}})
    assert SFTConfig.model_validate_json(settings.model_dump_json()) == settings


def test_the_older_name_of_the_interval_is_still_read() -> None:
    assert config(validation_interval=30).val.interval == 30


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"validation_interval": 30, "val": {"interval": 20}}, "the same key"),
        ({"data": {}}, "give one of"),
        ({"data": {"path": "a", "env": "b"}}, "give one of"),
        ({"data": {"path": "a", "args": {"x": 1}}}, "arguments of an environment"),
        ({"data": {"path": "a", "split": "test"}}, "there is no `name`"),
        ({"data": {"source": [{"path": "a"}, {"split": "test"}]}}, "there is no `name`"),
        ({"data": {"source": [{"path": "a"}, {}]}}, "each `source` needs one of"),
        ({"data": {"source": [{"path": "a", "probability": 0.5}, {"path": "b"}]}}, "each source a `probability`"),
        ({"data": {"source": [{"path": "a", "probability": 0.5}, {"path": "b", "probability": 0.4}]}}, "add up to 1"),
        ({"data": {"path": "a", "probabilities": [0.5, 0.5]}}, "2 probabilities for 1 sources"),
        ({"data": {"name": "a", "subsets": ["x", "y"], "splits": ["z"]}}, "equally many"),
        ({"data": {"path": "a", "loss_mask": {"assistant": False}}}, "nothing to learn"),
        ({"data": {"path": "a", "num_validation": 3}, "val": {"data": {"path": "b"}}}, "not both"),
        ({"trainer": {"scheduler": {"decay_steps": 500}}}, "more than max_steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        config(**changes)
