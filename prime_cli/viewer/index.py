"""Finds the lines of a results file without reading it into memory."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

_PREVIEW = 60


class RolloutFile:
    """The rollouts of one `results.jsonl`, parsed one at a time when they are looked at.

    Opening scans for line ends only; 100,000 rollouts take a fraction of a second.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = _line_starts(path)

    def __len__(self) -> int:
        return max(0, len(self._starts) - 1)

    def __getitem__(self, index: int) -> dict[str, Any]:
        start, end = self._starts[index], self._starts[index + 1]
        with self._path.open("rb") as file:
            file.seek(start)
            row: dict[str, Any] = json.loads(file.read(end - start))
        return row

    def preview(self, index: int) -> tuple[str, str, bool]:
        """Return (reward as text, first words of the answer, whether it failed) of one rollout."""
        row = self[index]
        failed = bool(row.get("error"))
        words = " ".join(message_text(message) for message in messages_of(row, "completion", "assistant"))
        return "error" if failed else reward_text(row), words.replace("\n", " ")[:_PREVIEW], failed


def messages_of(row: dict[str, Any], side: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of the prompt or the completion; plain text counts as one message of `role`."""
    found = row.get(side) or []
    if isinstance(found, str):
        found = [found]
    return [message if isinstance(message, dict) else {"role": role, "content": str(message)} for message in found]


def reward_text(row: dict[str, Any]) -> str:
    """Return the reward for reading, also when it is no number."""
    reward = row.get("reward")
    return f"{reward:.3f}" if isinstance(reward, int | float) else str(reward)


def message_text(message: dict[str, Any]) -> str:
    """Return the text of a message: its content, joined when it comes in parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _line_starts(path: Path) -> list[int]:
    """Return the offsets at which whole lines begin, and the end of the last one."""
    starts = [0]
    if not path.exists() or path.stat().st_size == 0:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = data.find(b"\n")
        while position != -1:
            starts.append(position + 1)
            position = data.find(b"\n", position + 1)
    return starts
