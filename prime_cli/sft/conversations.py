"""A row of data as a conversation: messages in the form that chat templates take, and the tools they may call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import ConfigError

COLUMNS = ("messages", "prompt", "completion", "tools", "tool_defs")
"""The columns that are read; a row may have others."""

EXPECTED = "a row holds `messages`, or `prompt` and `completion`, each a text or a list of messages"

Message = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """Messages that hold at least one of the assistant, and the tools it may call, in OpenAI's form."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)


def conversation_of_row(row: Any, where: str) -> Conversation:
    """Return a row of data as a conversation; `where` names it in messages.

    Raises:
        ConfigError: it is none; says where, and what was expected.
    """
    try:
        if not isinstance(row, Mapping):
            raise TypeError(f"it is no object but {_shown(row)}")
        if row.get("messages") is not None:
            messages = _messages(_parsed(row["messages"]), None)
        else:
            missing = [key for key in ("prompt", "completion") if row.get(key) is None]
            if missing:
                raise KeyError(f"it has no {' and no '.join(f'`{key}`' for key in missing)}")
            messages = [*_messages(row["prompt"], "user"), *_messages(row["completion"], "assistant")]
        if not any(message["role"] == "assistant" for message in messages):
            raise ValueError("it has no assistant message to learn from")
        tools = row["tools"] if row.get("tools") is not None else row.get("tool_defs")
        return Conversation(messages, _tools(tools))
    except (ValueError, KeyError, TypeError) as error:
        said = error.args[0] if error.args else type(error).__name__
        raise ConfigError(f"{where} is no demonstration: {said}", hint=EXPECTED) from None


def conversation_of_example(row: Mapping[str, Any]) -> Conversation | None:
    """Return an environment's example as a conversation, or None where it shows nothing to learn.

    After its prompt comes its `demonstration`, the messages of a whole episode, or else its `answer` as the only reply.
    What it has under `tools` or `tool_defs` may be called.
    """
    tools = _tools(row["tools"] if row.get("tools") is not None else row.get("tool_defs"))
    if row.get("demonstration"):
        return Conversation([*_messages(row["prompt"], "user"), *_messages(row["demonstration"], "assistant")], tools)
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer:
        return None
    return Conversation([*_messages(row["prompt"], "user"), {"role": "assistant", "content": answer}], tools)


def _messages(value: Any, role_of_a_text: str | None) -> list[Message]:
    """Return messages; a plain text is one message of the given role, where there is one."""
    if isinstance(value, str) and role_of_a_text is not None:
        return [{"role": role_of_a_text, "content": value}]
    if not isinstance(value, list):
        raise TypeError(f"{_shown(value)} is no list of messages")
    return [_message(message) for message in value]


def _message(message: Any) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise TypeError(f"{_shown(message)} is no message with a `role` and a `content`")
    # Columns of tables have every key that any row has; what is null was never there.
    kept = {str(key): value for key, value in message.items() if value is not None}
    calls = kept.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, Mapping) for call in calls)):
        raise TypeError(f"the tool_calls {_shown(calls)} are no list of calls")
    if calls:
        kept["tool_calls"] = [_without_nulls(call) for call in calls]
    if "content" not in kept and not calls:
        raise KeyError(f"a message of role {kept['role']!r} has no `content`")
    kept["content"] = _text(kept.get("content", ""))
    return kept


def _text(content: Any) -> str:
    """Return a message's content, text parts joined, as inference servers do it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TypeError(f"the content {_shown(content)} is no text")
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise TypeError(f"the content {_shown(part)} is no text; only text is learnt")
    return "".join(part["text"] for part in content)


def _tools(value: Any) -> list[dict[str, Any]]:
    """Return tools in OpenAI's form; verifiers writes them without the frame around the function."""
    value = _parsed(value)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise TypeError(f"the tools {_shown(value)} are no list of tools")
    tools = [_without_nulls(tool) for tool in map(_parsed, value)]
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]


def _parsed(value: Any) -> Any:
    """Return what JSON text says, where a table can only hold it so; anything else as it is."""
    return json.loads(value) if isinstance(value, str) else value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
