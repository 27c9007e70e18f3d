"""Makes what clients sent readable: messages in the shapes of several libraries, settings of any type. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_TEXT = 100_000
_MAX_VALUE = 300


@dataclass(frozen=True)
class Message:
    """One message of a conversation, with its tool calls as text."""

    role: str
    text: str
    tool_calls: list[str]


def messages_of(value: Any) -> list[Message]:
    """Return a prompt or a completion as messages: a list of them, or plain text."""
    if value in (None, "", []):
        return []
    if isinstance(value, list):
        return [_message(item) for item in value]
    return [_message(value)]


def text_of(value: Any) -> str:
    """Return a value as text: what is no text as JSON, what is very long cut off, and said so."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… and {len(text) - MAX_TEXT} more characters"


def short_facts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values for a table; nested ones as JSON, long ones cut off, empty ones left out."""
    return [(name, _short(value)) for name, value in values.items() if value not in (None, "", [], {})]


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"


def _message(item: Any) -> Message:
    if not isinstance(item, dict):
        return Message("text", text_of(item), [])
    thoughts = item.get("reasoning_content")
    text = "\n".join(part for part in (_content(thoughts), _content(item.get("content"))) if part)
    calls = item.get("tool_calls")
    shown = [_tool_call(call) for call in calls] if isinstance(calls, list) else []
    return Message(str(item.get("role", "text")), text_of(text), shown)


def _content(content: Any) -> str:
    """Return the words of a message's content: text, or a list of parts of which some are text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return text_of(content)


def _part(part: Any) -> str:
    if isinstance(part, dict):
        return part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type', 'part')}]"
    return str(part)


def _tool_call(call: Any) -> str:
    """Return a tool call as `name(arguments)`; libraries write them as objects or as JSON in a string."""
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except ValueError:
            return text_of(call)
    if not isinstance(call, dict):
        return text_of(call)
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if not isinstance(function.get("name"), str):
        return text_of(call)
    return text_of(f"{function['name']}({_content(function.get('arguments'))})")
