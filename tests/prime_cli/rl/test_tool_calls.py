"""Tool calls: read from what a model wrote, and rendered again into the same tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.protocol import ChatRequest, chat_response
from prime_cli.rl.inference.tool_calls import ToolCall, assistant_message, parse_tool_calls

TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"properties": {"key": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "stop"}},
]
USER = {"role": "user", "content": "a"}


def call(arguments: object = None, name: object = "look") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments or {}}, ensure_ascii=False)}</tool_call>"


def test_calls_are_told_from_text() -> None:
    text = f"I look.\n{call({'key': 'b'})}\n{call(name='stop')}"
    assert parse_tool_calls(text) == ("I look.", [ToolCall("look", '{"key": "b"}'), ToolCall("stop", "{}")])
    assert parse_tool_calls(" no call ") == (" no call ", [])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{</tool_call>",
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"name": "look"}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "look", "arguments": "b"}</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"key": NaN}}</tool_call>',
        '<tool_call>{"name": "look", "arguments": {"key": "\\ud800"}}</tool_call>',
        "<tool_call>" + '{"name": "look", "arguments": {"key": ' + "[" * 100_000 + "</tool_call>",
        '<tool_call>{"name": "look", "arguments": {}}',
        f"{call()}<tool_call>",
        f"{call()}<tool_call>{{</tool_call>",
        "</tool_call>" + call(),
    ],
)
def test_a_message_with_a_malformed_call_stays_text(text: str) -> None:
    assert parse_tool_calls(text) == (text, [])


def test_a_message_is_in_openais_form_and_has_calls_only_where_tools_were_offered() -> None:
    message = assistant_message(call({"key": "ü"}), parse_tools=True)
    (made,) = message["tool_calls"]
    assert message["content"] is None
    assert made["function"] == {"name": "look", "arguments": '{"key": "ü"}'}
    assert made["type"] == "function"
    assert made["id"].startswith("call_")
    assert assistant_message(call(), parse_tools=False) == {"role": "assistant", "content": call()}


@pytest.mark.parametrize(
    ("text", "asked", "finish", "says"),
    [
        (call(), {"tools": TOOLS}, "stop", "tool_calls"),
        (call(), {"tools": TOOLS}, "length", "length"),
        ("b", {"tools": TOOLS}, "stop", "stop"),
        (call(), {}, "stop", "stop"),
        (call(), {"tools": TOOLS, "tool_choice": "none"}, "stop", "stop"),
    ],
)
def test_the_finish_reason_says_whether_tools_are_called(
    text: str, asked: dict[str, Any], finish: Any, says: str
) -> None:
    request = ChatRequest(messages=[USER], **asked)
    completion = Completion([1], token_ids=[2], logprobs=[0.0], versions=[0], finish_reason=finish)
    (choice,) = chat_response(request, completion, model="m", text=text, tokens=None)["choices"]
    assert choice["finish_reason"] == says
    assert ("tool_calls" in choice["message"]) == (text == call() and asked == {"tools": TOOLS})


def test_a_tool_that_must_be_called_is_refused_since_nothing_enforces_it() -> None:
    with pytest.raises(ValidationError, match="tool_choice"):
        ChatRequest(messages=[USER], tools=TOOLS, tool_choice="required")


def test_a_conversation_with_calls_extends_its_own_tokens(tiny_model: Path) -> None:
    """What the model sampled, parsed, sent back and rendered again, are the same tokens."""
    tokenizer = load_tokenizer(tiny_model)
    chat = ChatTokenizer(tokenizer)
    first = chat.prompt_ids(ChatRequest(messages=[USER], tools=TOOLS))
    written = f"I look. {call({'key': 'ü', 'times': [1, 2.5, None]})}"
    # A text before a call is followed by no blank here, for this template puts none there.
    written = written.replace(". <", ".<")
    sampled = tokenizer(written + "<|im_end|>", add_special_tokens=False)["input_ids"]
    text, _ = chat.decode(Completion(first, token_ids=sampled), with_tokens=False)
    assert text == written
    message = assistant_message(text, parse_tools=True)
    result = {"role": "tool", "content": "c", "tool_call_id": message["tool_calls"][0]["id"]}
    second = chat.prompt_ids(ChatRequest(messages=[USER, message, result], tools=TOOLS))
    rest = tokenizer("<|tool|>c<|im_end|><|assistant|>", add_special_tokens=False)["input_ids"]
    assert second == [*first, *sampled, *rest]


def test_tools_are_shown_to_the_tiny_model_as_signatures(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    shown = tokenizer.apply_chat_template([USER], tools=TOOLS, tokenize=False)
    assert shown == "<|system|>look(key)\nstop()<|im_end|><|user|>a<|im_end|>"
    assert len(tokenizer("<tool_call></tool_call>")["input_ids"]) == 2


@pytest.mark.parametrize("broken", [{}, {"function": {}}, {"function": {"name": "look", "arguments": "{"}}, "look"])
def test_a_request_with_calls_in_another_form_is_refused(tiny_model: Path, broken: Any) -> None:
    chat = ChatTokenizer(load_tokenizer(tiny_model))
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [broken]}]
    with pytest.raises(ValueError, match="call"):
        chat.prompt_ids(ChatRequest(messages=messages))
