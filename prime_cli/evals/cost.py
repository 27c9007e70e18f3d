"""What rollouts cost: the price of tokens, what was spent, what will be, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from prime_cli.core.config_file import StrictModel
from prime_cli.environments.runtime import ModelEndpoint

_TOKENS_OF_A_PRICE = 1_000_000
_LETTERS_OF_A_TOKEN = 4
_AT_FIRST = 4
"""Rollouts that run before anything is known of what one costs."""


class TokenPrice(StrictModel):
    """`price` of an `[[endpoint]]`: dollars (or whatever --max-cost is in) for a million tokens."""

    input: float = Field(ge=0, description="For a million tokens that are sent.")
    output: float = Field(ge=0, description="For a million tokens that are sampled.")

    def of(self, input_tokens: float, output_tokens: float) -> float:
        """Return the price of so many tokens."""
        return (self.input * input_tokens + self.output * output_tokens) / _TOKENS_OF_A_PRICE

    def of_rollout(self, rollout: Mapping[str, Any]) -> float | None:
        """Return what a rollout cost; None when an answer came and the server did not count its tokens."""
        usage = rollout.get("token_usage")
        if usage:
            return self.of(usage.get("input_tokens") or 0.0, usage.get("output_tokens") or 0.0)
        return None if rollout.get("completion") else 0.0


@dataclass(frozen=True)
class PricedEndpoint:
    """A replica of the model, and what its tokens cost where that is known."""

    endpoint: ModelEndpoint
    price: TokenPrice | None = None

    def with_patience(self, seconds: float) -> PricedEndpoint:
        """Return it with that patience for a server that is asked too much."""
        return replace(self, endpoint=replace(self.endpoint, patience_s=seconds))


class Meter:
    """Adds up what rollouts cost, and knows what others will.

    Args:
        spent: what finished rollouts have cost before, `num_rollouts` of them.
        most: what all may cost together; None for any sum.
    """

    def __init__(self, spent: float = 0.0, num_rollouts: int = 0, *, most: float | None = None) -> None:
        self.spent = spent
        self._most = most
        self._num_rollouts = num_rollouts
        self._squares = spent * spent / num_rollouts if num_rollouts else 0.0

    def add(self, cost: float, num_rollouts: int = 1) -> None:
        """Count what so many rollouts have cost together."""
        self.spent += cost
        self._squares += cost * cost / num_rollouts
        self._num_rollouts += num_rollouts

    def expected(self) -> float | None:
        """Return what a rollout that has not ended may well cost: the mean and one deviation; None before the first."""
        if not self._num_rollouts:
            return None
        mean = self.spent / self._num_rollouts
        return mean + math.sqrt(max(0.0, self._squares / self._num_rollouts - mean * mean))

    def projected(self, num_left: int) -> float | None:
        """Return what everything will have cost when `num_left` more rollouts have ended."""
        return self.spent + num_left * self.spent / self._num_rollouts if self._num_rollouts else None

    def delay(self, num_rollouts: int, in_flight: int) -> float | None:
        """Say when so many rollouts may start: 0 is now, infinity when others have ended, None never."""
        if self._most is None:
            return 0.0
        expected = self.expected()
        if expected is None:
            return 0.0 if in_flight == 0 or in_flight + num_rollouts <= _AT_FIRST else math.inf
        if self.spent + (in_flight + num_rollouts) * expected <= self._most:
            return 0.0
        # Those in flight may turn out cheaper than was expected of them.
        return math.inf if in_flight else None


def estimate_in_words(price: TokenPrice, prompts: Sequence[Any], num_rollouts: int, max_tokens: int | None) -> str:
    """Say before anything has run what it may cost, by the length of some of the prompts."""
    sent = sum(map(tokens_in, prompts)) / len(prompts)
    least = num_rollouts * price.of(sent, 0)
    text = f"{num_rollouts} prompts of about {sent:.0f} tokens cost about {least:.4g}"
    if max_tokens is None:
        return f"{text}, and the answers what they are long; with several turns it is more"
    most = num_rollouts * price.of(sent, max_tokens)
    return f"{text}, with answers of {max_tokens} tokens {most:.4g}; with several turns it is more"


def tokens_in(prompt: Any) -> int:
    """Return about how many tokens a prompt has, by its letters."""
    if isinstance(prompt, str):
        return len(prompt) // _LETTERS_OF_A_TOKEN + 1
    if isinstance(prompt, Mapping):
        return tokens_in(prompt.get("content"))
    return sum(tokens_in(part) for part in prompt) if isinstance(prompt, list | tuple) else 0
