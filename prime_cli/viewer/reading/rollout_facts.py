"""What the list of rollouts shows of one line of a results file; a few words, where the messages may be long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from prime_cli.evals.figures import figures_of
from prime_cli.evals.tags import USUAL_TAGS, tags_of
from prime_cli.viewer.reading.messages import message_text, messages_of

_PREVIEW = 160
_TAGS = (*USUAL_TAGS, "category", "difficulty")


@dataclass(frozen=True)
class RolloutFacts:
    """One rollout in a row.

    `preview` begins the last reply, or says what went wrong; `tags` (`task=sums`) are parted by spaces.
    """

    number: int
    example: str
    reward: float | None
    failed: bool
    truncated: bool
    tokens: int | None
    tags: str
    preview: str


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a line of a results file; one that cannot be read becomes a rollout with that as its error."""
    try:
        row = from_json(line)
    except ValueError as error:
        row = error
    if isinstance(row, dict):
        return row
    return {"error": {"message": f"this line of the file cannot be read: {row}"}, "reward": None}


def facts_of(number: int, row: Mapping[str, Any]) -> tuple[RolloutFacts, dict[str, float]]:
    """Return the facts of rollout `number`, and its metrics."""
    figures = figures_of(row, ())
    output = figures.output_tokens
    facts = RolloutFacts(
        number=number,
        example=_example(row),
        reward=None if figures.error else figures.reward,
        failed=figures.error is not None,
        truncated=bool(row.get("is_truncated")),
        tokens=int(output) if isinstance(output, int | float) else _completion_tokens(row),
        tags=_tags(row),
        preview=_one_line(figures.error if figures.error else _last_reply(row)),
    )
    return facts, dict(figures.metrics)


def _tags(row: Mapping[str, Any]) -> str:
    """Return the tags of a rollout as `name=value`, parted by spaces; what has spaces in it gets dashes."""
    found = tags_of(row, _TAGS)
    return " ".join("-".join(f"{name}={value}".split()) for name, values in found.items() for value in values)


def _example(row: Mapping[str, Any]) -> str:
    example = row.get("example_id")
    if example is None:
        return "?"
    return example if isinstance(example, str) else json.dumps(example)


def _completion_tokens(row: Mapping[str, Any]) -> int | None:
    count = row.get("completion_tokens")
    return int(count) if isinstance(count, int | float) else None


def _last_reply(row: Mapping[str, Any]) -> str:
    messages = messages_of(row, "completion", "assistant")
    replies = [message for message in messages if message.get("role") == "assistant"]
    texts = (message_text(message) for message in reversed(replies or messages))
    return next((text for text in texts if text.strip()), "")


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * _PREVIEW].split())[:_PREVIEW]
