"""System prompts: in an example, in an environment, and how two of them differ."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def with_system_prompt(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the row with `text` as its system prompt, in place of the one it has; without a text as it is."""
    if not text:
        return dict(row)
    messages = list(row["prompt"])
    if messages and messages[0].get("role") == "system":
        messages = messages[1:]
    return {**row, "prompt": [{"role": "system", "content": text}, *messages]}


def system_prompt_of(row: Mapping[str, Any]) -> str:
    """Return the system prompt of a row, or an empty text."""
    messages = row["prompt"]
    return text_of(messages[0]) if messages and messages[0].get("role") == "system" else ""


def most_common_system_prompt(rows: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the system prompt that most of the rows have, and how many different ones there are."""
    counts = Counter(system_prompt_of(row) for row in rows)
    return (counts.most_common(1)[0][0], len(counts)) if counts else ("", 0)


def query_of(row: Mapping[str, Any]) -> str:
    """Return the first thing that the user says in a row."""
    return next((text_of(message) for message in row["prompt"] if message.get("role") == "user"), "")


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message; of parts that are no text their type."""
    content = message.get("content")
    if isinstance(content, list):
        parts = (part if isinstance(part, Mapping) else {"text": str(part)} for part in content)
        return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in parts)
    return str(content or "")


def sha256_of(text: str) -> str:
    """Return by what a prompt is known."""
    return hashlib.sha256(text.encode()).hexdigest()


def diff(before: str, after: str, *, name: str = "candidate") -> str:
    """Return the unified difference of two prompts, empty when they are the same."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "initial/system_prompt.txt", f"{name}/system_prompt.txt", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)
