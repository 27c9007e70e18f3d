"""What decides which examples are opened, how many at once, and what of them is trained on.

    Sampler        the next example of an environment
    AdmissionGate  whether a finished group joins a batch at all; a batch refills what is refused
    Filter         whether a sample is trained on
    Concurrency    how many rollouts may be in flight now

All are asked from the orchestrator's loop, so they answer at once and wait for nothing. `state` is JSON, and a fresh
object that is given it with `restore` goes on as the old one would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prime_cli.rl.orchestrator.groups import FinishedGroup
from prime_cli.rl.transport import Sample


class Sampler(Protocol):
    """Chooses the examples of one environment."""

    def next(self) -> int:
        """Return the index of the example to open next."""

    def told(self, example: int, rewards: Sequence[float]) -> None:
        """Hear the rewards that an example's group got; none when every rollout failed."""

    def metrics(self) -> dict[str, float]:
        """Return figures about the choice, for the record of a step."""

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where the sampler of that state was."""


class AdmissionGate(Protocol):
    """Decides on a whole group, before it takes a place in a batch."""

    name: str

    def admits(self, group: FinishedGroup) -> bool:
        """Say whether the group joins a batch."""


class Filter(Protocol):
    """Decides on one sample; with `enforce` unset it only counts what it would have dropped."""

    name: str
    enforce: bool

    def catches(self, sample: Sample) -> bool:
        """Say whether the sample should not be trained on."""


class Concurrency(Protocol):
    """Says how many rollouts may be in flight."""

    def limit(self) -> int:
        """Return the rollouts that may be in flight at this moment."""

    def metrics(self) -> dict[str, float | int]:
        """Return figures for the record of a step."""


@dataclass
class StaticConcurrency:
    """The same number of rollouts throughout."""

    rollouts: int

    def limit(self) -> int:
        """Return that number."""
        return self.rollouts

    def metrics(self) -> dict[str, float | int]:
        """Return that number, too."""
        return {"concurrency/limit": self.rollouts}
