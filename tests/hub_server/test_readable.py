"""What clients sent, made readable."""

from __future__ import annotations

from hub_server.web.readable import MAX_TEXT, Message, messages_of, short_facts, text_of


def test_messages_of_all_shapes_become_role_text_and_calls() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {}}]
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    value = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "assistant", "content": "4", "tool_calls": ['{"name": "add", "arguments": {"a": 1}}', "no json"]},
        "odd",
    ]
    assert messages_of(value) == [
        Message("user", "look\n[image_url]", []),
        Message("assistant", "hm", ['add({"a": 1})']),
        Message("assistant", "4", ['add({\n  "a": 1\n})', "no json"]),
        Message("text", "odd", []),
    ]
    assert messages_of("plain") == [Message("text", "plain", [])]
    assert messages_of(None) == []
    assert messages_of([{"content": {"a": 1}}]) == [Message("text", '{\n  "a": 1\n}', [])]


def test_long_texts_are_cut_and_say_so() -> None:
    assert text_of("x" * (MAX_TEXT + 7)).endswith("… and 7 more characters")
    assert len(dict(short_facts({"a": "x" * 1000}))["a"]) < 400


def test_facts_leave_out_what_is_empty() -> None:
    values = {"a": 0.123456, "b": True, "c": {}, "d": None, "e": {"k": [1]}, "f": 0, "g": "w"}
    assert short_facts(values) == [("a", "0.1235"), ("b", "yes"), ("e", '{"k": [1]}'), ("f", "0"), ("g", "w")]
