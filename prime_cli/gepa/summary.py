"""What came out of a run, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.gepa.comparison import Comparison
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Progress
from prime_cli.gepa.prompts import diff
from prime_cli.gepa.search import Found


@dataclass(frozen=True)
class GepaSummary:
    """The end of a run. `comparison` is None where nothing was held out, or nothing was found to compare.

    `path` is None when nothing was kept.
    """

    found: Found
    plan: Plan
    progress: Progress
    comparison: Comparison | None
    path: Path | None
    seconds: float

    @property
    def prompt(self) -> str:
        """The best prompt."""
        return self.found.prompts[self.found.best]

    @property
    def verdict(self) -> str:
        """Say in words whether the best prompt is better than the initial one; nothing is claimed without a test."""
        found, compared = self.found, self.comparison
        if found.best == 0:
            return "no gain: no proposal did better than the initial prompt on the validation examples"
        if compared is None:
            scores = f"{found.scores[found.best]:.3f} against {found.scores[0]:.3f}"
            return f"no gain shown: {scores} is what the prompt was chosen by, and nothing held out tested it"
        figures = (
            f"{compared.best.mean:.3f} against {compared.initial.mean:.3f} on {compared.difference.n} held-out examples"
        )
        difference = compared.difference
        figures += f", {difference.mean:+.3f}"
        if difference.low is not None and difference.high is not None:
            figures += f" (95 % interval {difference.low:+.3f} to {difference.high:+.3f})"
        if difference.p is not None:
            figures += f", p = {difference.p:.2g}"
        if compared.verdict != "no gain shown":
            return f"a {compared.verdict}: {figures}"
        if difference.low is not None and difference.high is not None and difference.low <= 0 <= difference.high:
            return f"no gain shown: {figures}; the interval includes 0"
        return f"no gain shown: {figures}; so much may be chance"

    def as_data(self) -> dict[str, Any]:
        """Return what `--output json` prints."""
        found = self.found
        return {
            "path": str(self.path) if self.path else None,
            "system_prompt": self.prompt,
            "best_idx": found.best,
            "best_score": found.scores[found.best],
            "initial_score": found.scores[0],
            "held_out": self.comparison.as_data() if self.comparison else None,
            "verdict": self.verdict,
            "calls": found.calls,
            "max_calls": self.plan.max_calls,
            "replayed_calls": self.progress.replayed,
            "num_proposals": self.progress.proposals,
            "num_errors": self.progress.errors,
            "usage": {"model": self.progress.rollouts.as_data(), "reflection": self.progress.reflections.as_data()},
            "cost_usd": self.progress.cost,
            "seconds": self.seconds,
            "candidates": [
                {
                    "idx": index,
                    "parents": found.parents[index],
                    "score": found.scores[index],
                    "found_after_calls": found.discovered_after[index],
                    "diff_from_initial": diff(found.prompts[0], prompt, name=f"candidate_{index}"),
                }
                for index, prompt in enumerate(found.prompts)
            ],
        }
