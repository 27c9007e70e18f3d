"""Messages of a rollout as they are stored, in the shapes that libraries and servers give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool: its id, the tool's name, and the arguments as text, indented where they are JSON."""

    id: str
    name: str
    arguments: str


def messages_of(row: Mapping[str, Any], side: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of the prompt or the completion; plain text counts as one message of `role`."""
    found = row.get(side) or []
    if not isinstance(found, list):
        found = [found]
    return [message if isinstance(message, dict) else {"role": role, "content": str(message)} for message in found]


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message: its content, joined when it comes in parts; pictures and sounds are named."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return "" if content is None else str(content)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return what the model thought before it answered, under whichever name the server gave it."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key].strip():
            return str(message[key])
    blocks = message.get("thinking_blocks")
    if isinstance(blocks, list):
        return "\n".join(str(block.get("thinking", "")) for block in blocks if isinstance(block, dict))
    return ""


def tool_calls_of(message: Mapping[str, Any]) -> list[ToolCall]:
    """Return the calls of a message: objects as OpenAI writes them, or JSON text as verifiers stores them."""
    calls = message.get("tool_calls")
    return [_tool_call(call) for call in calls] if isinstance(calls, list) else []


def _tool_call(call: Any) -> ToolCall:
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except ValueError:
            return ToolCall("", call, "")
    if not isinstance(call, dict):
        return ToolCall("", str(call), "")
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or "?"), _readable(function.get("arguments")))


def _readable(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return str(arguments)
    if arguments in (None, {}, ""):
        return ""
    short = json.dumps(arguments, ensure_ascii=False)
    return short if len(short) <= 60 else json.dumps(arguments, ensure_ascii=False, indent=2)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    if "text" in part:
        return str(part["text"])
    return f"[{part.get('type', 'part')}]"
