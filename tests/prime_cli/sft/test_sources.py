"""Sources of demonstrations: JSON lines, Parquet and datasets, and what is wrong with bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from prime_cli.core.errors import ConfigError
from prime_cli.sft.conversations import Conversation, conversation_of_example
from prime_cli.sft.data_config import SourceConfig
from prime_cli.sft.sources import load_conversations

USER, ASSISTANT = {"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def read(tmp_path: Path, **source: Any) -> list[Conversation]:
    return load_conversations(SourceConfig(**source), log_directory=tmp_path)


def read_lines(tmp_path: Path, *rows: object) -> list[Conversation]:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return read(tmp_path, path=path)


def test_messages_and_prompt_completion_lines_are_both_read(tmp_path: Path) -> None:
    rows = (
        {"messages": [USER, ASSISTANT]},
        {"prompt": "ab", "completion": "ba"},
        {"prompt": [USER], "completion": "ba", "messages": None},
        {"prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
         "completion": [ASSISTANT]},
    )  # fmt: skip
    assert read_lines(tmp_path, *rows) == [Conversation([USER, ASSISTANT])] * 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "x"}, "it has no `prompt` and no `completion`"),
        ({"prompt": "x"}, "it has no `completion`"),
        ({"messages": [USER]}, "no assistant message to learn from"),
        ({"messages": "ab"}, "demonstration"),
        ([], r"it is no object but \[\]"),
        ({"messages": [{"content": "x"}]}, "no message with a `role`"),
        ({"messages": [{"role": "assistant"}]}, "of role 'assistant' has no `content`"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "only text is learnt"),
        ({"messages": [USER, ASSISTANT], "tools": "nonsense"}, "demonstration"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": "add(1)"}]}, "no list of calls"),
    ],
)
def test_a_line_that_is_no_demonstration_is_named_with_the_reason(tmp_path: Path, row: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.jsonl:2 .*{reason}"):
        read_lines(tmp_path, {"prompt": "a", "completion": "b"}, row)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"prompt": "a", "completion": "b"}\n\n{"prompt": "a"')
    with pytest.raises(ConfigError, match=r"data\.jsonl:3 is not JSON"):
        read(tmp_path, path=tmp_path / "data.jsonl")


def test_line_separators_inside_a_string_do_not_end_the_line(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps({"prompt": "a\u2028b", "completion": "c"}, ensure_ascii=False))
    (conversation,) = read(tmp_path, path=tmp_path / "data.jsonl")
    assert conversation.messages[0]["content"] == "a\u2028b"


def test_missing_empty_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such data file"):
        read(tmp_path, path=tmp_path / "none")
    with pytest.raises(ConfigError, match="no demonstrations"):
        read_lines(tmp_path)
    with pytest.raises(ConfigError, match="is a folder"):
        read(tmp_path, path=tmp_path)
    for name, reason in (("a.parquet", "cannot be read"), ("a.jsonl", "cannot be read"), ("a.csv", "neither")):
        (tmp_path / name).write_bytes(b"\xff\xfe nonsense")
        with pytest.raises(ConfigError, match=reason):
            read(tmp_path, path=tmp_path / name)


def test_tools_come_in_either_form_and_keep_their_calls(tmp_path: Path) -> None:
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, ASSISTANT]
    bare = TOOL["function"]
    rows = [{"messages": messages, "tools": [TOOL]}, {"messages": messages, "tool_defs": json.dumps([bare])}]
    conversations = read_lines(tmp_path, *rows)
    assert [conversation.tools for conversation in conversations] == [[TOOL], [TOOL]]
    assert conversations[0].messages[1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}


def test_parquet_rows_lose_the_nulls_that_only_their_table_gave_them(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    rows = [{"messages": [USER, reply], "other": 1}, {"messages": [USER, ASSISTANT], "other": 2}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "data.parquet")
    first, second = read(tmp_path, path=tmp_path / "data.parquet")
    assert first.messages == [USER, reply]
    assert second.messages == [USER, ASSISTANT]


def test_parquet_with_other_columns_or_a_bad_row_says_which(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["a"], "label": [1]}), tmp_path / "data.parquet")
    with pytest.raises(ConfigError, match="has the columns text, label"):
        read(tmp_path, path=tmp_path / "data.parquet")
    parquet.write_table(pyarrow.table({"prompt": ["a", "b"], "completion": ["c", None]}), tmp_path / "data.parquet")
    with pytest.raises(ConfigError, match=r"row 2 is no demonstration: it has no `completion`"):
        read(tmp_path, path=tmp_path / "data.parquet")


def test_a_dataset_is_read_from_where_it_was_saved_and_from_a_folder_of_parquet(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_list([{"prompt": "ab", "completion": "ba"}])
    dataset.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": dataset, "more": dataset}).save_to_disk(str(tmp_path / "several"))
    (tmp_path / "folder").mkdir()
    parquet.write_table(pyarrow.table({"prompt": ["ab"], "completion": ["ba"]}), tmp_path / "folder" / "train.parquet")
    expected = [Conversation([USER, ASSISTANT])]
    assert read(tmp_path, name=str(tmp_path / "one")) == expected
    assert read(tmp_path, name=str(tmp_path / "several"), split="more") == expected
    assert read(tmp_path, name=str(tmp_path / "folder")) == expected
    with pytest.raises(ConfigError, match="no split 'test'") as refused:
        read(tmp_path, name=str(tmp_path / "several"), split="test")
    assert refused.value.hint == "it has more, train"
    with pytest.raises(ConfigError, match=r"folder \(test\) cannot be loaded"):
        read(tmp_path, name=str(tmp_path / "folder"), split="test")


def test_an_example_without_an_answer_is_no_demonstration() -> None:
    assert conversation_of_example({"prompt": [USER], "answer": "ba"}) == Conversation([USER, ASSISTANT])
    assert conversation_of_example({"prompt": [USER], "answer": ""}) is None
    assert conversation_of_example({"prompt": [USER]}) is None


def test_an_example_with_a_demonstration_is_learnt_over_all_its_turns_with_its_tools() -> None:
    tool = {"name": "look", "parameters": {"properties": {}}}
    row = {"prompt": [USER], "answer": "c", "demonstration": [ASSISTANT, USER, ASSISTANT], "tools": json.dumps([tool])}
    expected = Conversation([USER, ASSISTANT, USER, ASSISTANT], [{"type": "function", "function": tool}])
    assert conversation_of_example(row) == expected
