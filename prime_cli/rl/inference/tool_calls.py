"""Tool calls as models write them, and as OpenAI's dialect and chat templates have them.

The form is that of the Hermes and Qwen models: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Arguments
travel as a JSON text and are rendered as an object again, so a call in the spelling of the chat template (a blank after
colon and comma) extends its own tokens on the next turn; any other spelling starts a new sample.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_MARKERS = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True)
class ToolCall:
    """One call; `arguments` is the JSON text of an object."""

    name: str
    arguments: str


def parse_tool_calls(text: str) -> tuple[str, list[ToolCall]]:
    """Split what a model wrote into text and calls.

    A text in which any call is malformed comes back whole, without calls: a guess at what was meant would teach the
    model that it need not write well. Blanks around calls, which templates put there themselves, are no content.
    """
    try:
        calls = [_call(body) for body in _CALL.findall(text)]
    except (ValueError, RecursionError):
        return text, []
    rest = _CALL.sub("", text)
    if not calls or any(marker in rest for marker in _MARKERS):
        return text, []
    return rest.strip(), calls


def _call(body: str) -> ToolCall:
    call = json.loads(body, parse_constant=_refuse_constant)
    if not isinstance(call, dict):
        raise ValueError("a call is an object")
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a call has a name and an object of arguments")
    written = json.dumps(arguments, ensure_ascii=False)
    (name + written).encode()  # half of a surrogate pair is JSON, and no text
    return ToolCall(name, written)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def assistant_message(text: str, *, parse_tools: bool) -> dict[str, Any]:
    """Return what a model wrote as a message in OpenAI's form, its calls parsed where tools were offered."""
    content, calls = parse_tool_calls(text) if parse_tools else (text, [])
    if not calls:
        return {"role": "assistant", "content": text}
    return {
        "role": "assistant",
        "content": content or None,
        "tool_calls": [
            {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ],
    }


def with_parsed_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have their arguments as objects, as chat templates expect them.

    Raises:
        ValueError: the calls are not in OpenAI's form.
    """
    return {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}


def _with_object(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError("a tool call needs a `function` with a `name`")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise ValueError(f"the arguments of a call of {function['name']!r} are not JSON: {error}") from None
    return {**call, "function": {**function, "arguments": arguments or {}}}
