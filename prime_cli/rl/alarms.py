"""What is wrong with a run, as its figures say: each alarm with the reason and what to do. Pure.

An alarm is about now: of the last step, or of the last few where one says little.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISMATCH_LIMIT = 0.01
_HALF = 0.5
_WINDOW = 5
_COLLAPSED = 0.1  # of the entropy at the start
_SOLVED = 0.9  # of the best reward that any rollout had
_MIXED_ENOUGH = 0.1

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Alarm:
    """Something to look at. `figure` is the metric that it is about, `words` say what is wrong and what helps."""

    figure: str
    words: str


def alarms_of(steps: Sequence[Figures]) -> list[Alarm]:
    """Return what is wrong at the last of `steps`, each of which has the figures of all processes."""
    batches = [step for step in steps if "reward/mean" in step]  # the others were only evaluated
    if not batches:
        return []
    found = [check(batches) for check in _CHECKS]
    return [alarm for alarm in found if alarm is not None]


def missing_signal(figures: Figures) -> str | None:
    """Explain why a batch teaches next to nothing, or return None when it does teach.

    A group whose rewards are all equal says nothing about which of its rollouts was better.
    """
    clean = int(figures.get("rollouts", 0)) - int(figures.get("errors", 0))
    if clean <= 0 or figures.get("samples", clean) >= _MIXED_ENOUGH * clean:
        return None
    right, wrong = (float(figures.get(f"groups/all_{kind}", 0.0)) for kind in ("right", "wrong"))
    mixed = max(0.0, 1.0 - right - wrong)
    shares = f"{wrong:.0%} of the groups are all wrong, {right:.0%} all right, {mixed:.0%} mixed"
    much = "nothing" if not figures.get("samples") else "little"
    return f"there is {much} to learn from: {shares}, and only mixed ones teach. {_way_out(right, wrong)}"


def _way_out(right: float, wrong: float) -> str:
    if right + wrong < _HALF:
        return "Filters, gates or their age (off_policy/dropped) took the rest"
    if wrong >= right:
        return (
            "The task is too hard for this model: take easier examples, warm it up with `prime sft run`, give more "
            "rollouts_per_example or a higher sampling.temperature, or a reward with steps between 0 and 1"
        )
    return "The task is too easy for this model: take harder examples, or a reward that tells good from better"


def _signal(steps: Sequence[Figures]) -> Alarm | None:
    words = missing_signal(steps[-1])
    return None if words is None else Alarm("groups/zero_advantage", words)


def _mismatch(steps: Sequence[Figures]) -> Alarm | None:
    now = next((step for step in reversed(steps[-2:]) if "mismatch_kl/mean" in step), {})  # trained on, that is
    mismatch = float(now.get("mismatch_kl/mean", 0.0))
    if mismatch <= MISMATCH_LIMIT:
        return None
    age = float(now.get("off_policy/mean", 0.0))
    if age > 0:  # a few old groups are enough
        reason = (
            f"the rollouts are {age:.1f} versions old: a lower learning_rate or orchestrator.max_off_policy_steps "
            "keeps the policy nearer to them"
        )
    else:
        reason = (
            "with fresh rollouts that is not the policy moving: trainer and server compute different "
            "log-probabilities from the same weights (precision, a stale prefix cache, another model); "
            "`prime rl tokens` shows which tokens"
        )
    return Alarm("mismatch_kl/mean", f"mismatch KL {mismatch:.1e} is above {MISMATCH_LIMIT}; {reason}")


def _entropy(steps: Sequence[Figures]) -> Alarm | None:
    known = [step for step in steps if "entropy/mean" in step and "reward/mean" in step]
    if len(known) < 3 * _WINDOW:
        return None
    first = statistics.fmean(step["entropy/mean"] for step in known[:_WINDOW])
    last = statistics.fmean(step["entropy/mean"] for step in known[-_WINDOW:])
    reward, before = (
        statistics.fmean(step["reward/mean"] for step in part)
        for part in (known[-_WINDOW:], known[-2 * _WINDOW : -_WINDOW])
    )
    best = max(step.get("reward/max", step["reward/mean"]) for step in known)
    if last > _COLLAPSED * first or reward > before + 0.01 or reward >= _SOLVED * best:
        return None  # a policy that is sure of itself because it is right, or is getting there
    return Alarm(
        "entropy/mean",
        f"entropy has collapsed from {first:.2f} to {last:.3f} nats, and the reward stands at {reward:.2f}: rollouts "
        "are too alike to learn from. Go back to earlier weights with a lower learning_rate or a higher "
        "sampling.temperature",
    )


def _errors(steps: Sequence[Figures]) -> Alarm | None:
    now = steps[-1]
    errors, rollouts = int(now.get("errors", 0)), int(now.get("rollouts", 0))
    if not rollouts or errors <= _HALF * rollouts:
        return None
    return Alarm("errors", f"{errors} of {rollouts} rollouts failed ({error_kinds(now)}); logs/ has what they wrote")


def _truncation(steps: Sequence[Figures]) -> Alarm | None:
    share = float(steps[-1].get("truncated", 0.0))
    if share <= _HALF:
        return None
    return Alarm("truncated", f"{share:.0%} of the completions are cut off: raise sampling.max_tokens")


def error_kinds(figures: Figures) -> str:
    """Return the kinds of errors of a step with their counts, the most frequent first."""
    kinds = {key.removeprefix("error/"): count for key, count in figures.items() if key.startswith("error/") and count}
    return ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0])))


_CHECKS: tuple[Callable[[Sequence[Figures]], Alarm | None], ...] = (_signal, _errors, _mismatch, _entropy, _truncation)
