"""How far a run is, what it has found, and what it has used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prime_cli.core.errors import PrimeError


@dataclass(frozen=True)
class Usage:
    """Calls of one model and their tokens; `cost` is in dollars, None where the price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    cost_squares: float = 0.0

    def plus(self, input_tokens: float | None, output_tokens: float | None, cost: float | None) -> Usage:
        """Return the usage with one more call."""
        sent, sampled = int(input_tokens or 0), int(output_tokens or 0)
        total = self.cost if cost is None else (self.cost or 0.0) + cost
        squares = self.cost_squares + (cost or 0.0) ** 2
        return Usage(self.calls + 1, self.input_tokens + sent, self.output_tokens + sampled, total, squares)

    @property
    def expected_cost(self) -> float:
        """What another call may well cost: the mean and one deviation; 0 where nothing is known."""
        if not self.calls:
            return 0.0
        mean = (self.cost or 0.0) / self.calls
        return mean + math.sqrt(max(0.0, self.cost_squares / self.calls - mean * mean))

    def as_data(self) -> dict[str, Any]:
        """Return the figures for files."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost,
        }


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
        max_cost: what both models together may cost; None for any sum.
    """

    def __init__(self, max_calls: int, observe: Observer, max_cost: float | None = None) -> None:
        self.now = Progress("loading the environment", max_calls=max_calls)
        self._observe = observe
        self._max_cost = max_cost

    def affords(self, num_rollouts: int) -> bool:
        """Say whether so many rollouts more, and a reflection, will likely keep within what may be spent."""
        if self._max_cost is None:
            return True
        now = self.now
        more = num_rollouts * now.rollouts.expected_cost + now.reflections.expected_cost
        return (now.cost or 0.0) + more <= self._max_cost

    def check_cost(self) -> None:
        """Check that something is left to spend.

        Raises:
            PrimeError: nothing is.
        """
        if self._max_cost is not None and (self.now.cost or 0.0) >= self._max_cost:
            raise PrimeError(
                f"the run has cost {self.now.cost:.4g}, which is all of the {self._max_cost:.4g} that it may",
                hint="to go on with it, give a larger --max-cost",
            )

    def change(self, **fields: Any) -> None:
        """Set fields of the progress."""
        self.now = replace(self.now, **fields)
        self._observe(self.now)

    def rollout(self, record: Mapping[str, Any], *, failed: bool, replayed: bool, compared: bool) -> None:
        """Count a finished rollout; `compared`: it belongs to the held-out comparison."""
        tokens, cost = record.get("token_usage") or {}, record.get("cost")
        self.change(
            calls=self.now.calls + (not compared),
            comparison_calls=self.now.comparison_calls + compared,
            replayed=self.now.replayed + replayed,
            errors=self.now.errors + failed,
            rollouts=self.now.rollouts.plus(tokens.get("input_tokens"), tokens.get("output_tokens"), cost),
        )

    def reflection(self, record: Mapping[str, Any]) -> None:
        """Count an answer of the reflection model."""
        tokens, cost = record.get("usage") or {}, record.get("cost")
        self.change(
            reflections=self.now.reflections.plus(tokens.get("prompt_tokens"), tokens.get("completion_tokens"), cost)
        )
