"""How far a run is, what it has found, and what it has used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Usage:
    """Calls of one model and their tokens; `cost` is in dollars, None where the price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    def plus(self, input_tokens: float | None, output_tokens: float | None, prices: Prices | None) -> Usage:
        """Return the usage with one more call."""
        sent, sampled = int(input_tokens or 0), int(output_tokens or 0)
        cost = self.cost if prices is None else (self.cost or 0.0) + prices.cost(sent, sampled)
        return Usage(self.calls + 1, self.input_tokens + sent, self.output_tokens + sampled, cost)

    def as_data(self) -> dict[str, Any]:
        """Return the figures for files."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost,
        }


@dataclass(frozen=True)
class Prices:
    """Dollars for a million tokens."""

    input: float
    output: float

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Return what so many tokens cost, in dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Progress:
    """What is shown. `calls` are rollouts of the search, `phase` says which prompt is under test on what.

    The held-out comparison takes `comparison_total` calls, 0 before it begins. Scores are means over the validation
    examples, None until they are known. `replayed` of the calls came from the journal of an earlier attempt.
    """

    phase: str
    calls: int = 0
    max_calls: int = 0
    replayed: int = 0
    errors: int = 0
    candidates: int = 0
    proposals: int = 0
    baseline: float | None = None
    best: float | None = None
    best_candidate: int = 0
    comparison_calls: int = 0
    comparison_total: int = 0
    rollouts: Usage = Usage()
    reflections: Usage = Usage()

    @property
    def done(self) -> tuple[int, int]:
        """How many calls of how many: of the search, and once it is over of the held-out comparison."""
        if self.comparison_total:
            return self.comparison_calls, self.comparison_total
        return self.calls, self.max_calls

    @property
    def cost(self) -> float | None:
        """What both models cost so far, in dollars; None where no price is known."""
        known = [usage.cost for usage in (self.rollouts, self.reflections) if usage.cost is not None]
        return sum(known) if known else None


Observer = Callable[[Progress], None]
"""Called whenever something changed."""


class Meter:
    """Keeps the progress of a run and shows each change; every call comes from the event loop's thread or waits for it.

    Args:
        prices: of the model and of the reflection model.
    """

    def __init__(self, max_calls: int, observe: Observer, prices: tuple[Prices | None, Prices | None]) -> None:
        self.now = Progress("loading the environment", max_calls=max_calls)
        self._observe = observe
        self._prices = prices

    def change(self, **fields: Any) -> None:
        """Set fields of the progress."""
        self.now = replace(self.now, **fields)
        self._observe(self.now)

    def rollout(self, usage: dict[str, Any] | None, *, failed: bool, replayed: bool, compared: bool) -> None:
        """Count a finished rollout; `compared`: it belongs to the held-out comparison."""
        tokens = usage or {}
        self.change(
            calls=self.now.calls + (not compared),
            comparison_calls=self.now.comparison_calls + compared,
            replayed=self.now.replayed + replayed,
            errors=self.now.errors + failed,
            rollouts=self.now.rollouts.plus(tokens.get("input_tokens"), tokens.get("output_tokens"), self._prices[0]),
        )

    def reflection(self, usage: dict[str, Any] | None) -> None:
        """Count an answer of the reflection model."""
        tokens = usage or {}
        usage_now = self.now.reflections.plus(
            tokens.get("prompt_tokens"), tokens.get("completion_tokens"), self._prices[1]
        )
        self.change(reflections=usage_now)
