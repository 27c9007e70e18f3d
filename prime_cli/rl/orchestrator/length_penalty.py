"""What long rollouts lose of their reward, against the longest of their group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prime_cli.rl.curriculum_config import LengthPenaltyConfig


@dataclass(frozen=True)
class Length:
    """Tokens that a rollout's model sampled (`output`) and read (`input`), and its turns."""

    output: int
    input: int
    turns: int


def length_of(trajectory: Sequence[Mapping[str, Any]]) -> Length:
    """Return the length of a rollout. Tokens of a turn that continues the one before it are read once."""
    output = read = 0
    before: list[int] = []
    for step in trajectory:
        tokens = step.get("tokens") or {}  # without them there will be no samples, and an error that says so
        prompt: list[int] = tokens.get("prompt_ids", [])
        completion: list[int] = tokens.get("completion_ids", [])
        read += len(prompt) - len(before) if prompt[: len(before)] == before else len(prompt)
        output += len(completion)
        before = [*prompt, *completion]
    return Length(output, read, len(trajectory))


def shortened(rewards: Sequence[float], lengths: Sequence[Length], penalty: LengthPenaltyConfig) -> list[float]:
    """Return the rewards less the penalties.

    R' = R - |mean(R)| * (w_o * out / max out + w_i * in / max in + w_t * turns / max turns), over the group; by
    the size of the mean, since a negative one would reward length.
    """
    mean = abs(sum(rewards) / len(rewards))
    outputs, inputs, turns = (
        max(1, *(getattr(length, name) for length in lengths)) for name in ("output", "input", "turns")
    )
    return [
        reward
        - mean
        * (
            penalty.output * each.output / outputs
            + penalty.input * each.input / inputs
            + penalty.turns * each.turns / turns
        )
        for reward, each in zip(rewards, lengths, strict=True)
    ]
