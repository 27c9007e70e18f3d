"""Demonstrations: reading, rendering and masking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_tokenizer
from prime_cli.sft.config import DataConfig
from prime_cli.sft.data import batches_forever, conversation_of_example, load_conversations, render_samples

USER, ASSISTANT = {"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}


def read(tmp_path: Path, *rows: object) -> list[list[dict[str, str]]]:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return load_conversations(DataConfig(path=path), log_directory=tmp_path)


def test_messages_and_prompt_completion_lines_are_both_read(tmp_path: Path) -> None:
    rows = (
        {"messages": [USER, ASSISTANT]},
        {"prompt": "ab", "completion": "ba"},
        {"prompt": [USER], "completion": "ba"},
    )
    assert read(tmp_path, *rows) == [[USER, ASSISTANT]] * 3


@pytest.mark.parametrize("row", [{"text": "x"}, {"messages": [USER]}, [], {"messages": [{"content": "x"}]}])
def test_a_line_that_is_no_demonstration_is_named(tmp_path: Path, row: object) -> None:
    with pytest.raises(ConfigError, match=r"data\.jsonl:2"):
        read(tmp_path, {"prompt": "a", "completion": "b"}, row)


def test_line_separators_inside_a_string_do_not_end_the_line(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps({"prompt": "a\u2028b", "completion": "c"}, ensure_ascii=False))
    ((user, _),) = load_conversations(DataConfig(path=tmp_path / "data.jsonl"), log_directory=tmp_path)
    assert user["content"] == "a\u2028b"


def test_a_missing_file_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such data file"):
        load_conversations(DataConfig(path=tmp_path / "none"), log_directory=tmp_path)
    with pytest.raises(ConfigError, match="no demonstrations"):
        read(tmp_path)


def test_an_example_without_an_answer_is_no_demonstration() -> None:
    assert conversation_of_example({"prompt": [USER], "answer": "ba"}) == [USER, ASSISTANT]
    assert conversation_of_example({"prompt": [USER], "answer": ""}) is None
    assert conversation_of_example({"prompt": [USER]}) is None


def test_only_the_assistants_tokens_and_end_markers_are_learnt(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    (sample,) = render_samples([[USER, ASSISTANT, USER, ASSISTANT]], tokenizer, seq_len=64)
    learnt = [token for token, weight in zip(sample.token_ids, sample.ce_weights, strict=True) if weight]
    assert tokenizer.decode(learnt) == "ba<|im_end|>ba<|im_end|>"
    assert tokenizer.decode(sample.token_ids).count("<|user|>ab") == 2
    assert not any(sample.rl_weights)


def test_samples_are_cut_at_the_sequence_length(tiny_model: Path) -> None:
    (sample,) = render_samples([[USER, ASSISTANT]], load_tokenizer(tiny_model), seq_len=5)
    assert len(sample.token_ids) == 5


def test_every_epoch_shows_every_sample_once(tiny_model: Path) -> None:
    conversations = [[{"role": "user", "content": str(i)}, ASSISTANT] for i in range(10)]
    samples = render_samples(conversations, load_tokenizer(tiny_model), seq_len=64)
    batches = batches_forever(samples, 4, seed=0)
    first_two_epochs = [id(sample) for _ in range(5) for sample in next(batches)]
    assert sorted(first_two_epochs[:10]) == sorted(first_two_epochs[10:]) == sorted(id(s) for s in samples)
