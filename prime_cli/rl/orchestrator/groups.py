"""A group of rollouts from its opening to its end: what it says, and what of it is trained on."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.rollout_errors import error_text
from prime_cli.rl.orchestrator.samples import count_branches
from prime_cli.rl.transport import Sample


@dataclass(frozen=True)
class OpenGroup:
    """One prompt whose rollouts are asked for, the `number`-th that the run opened.

    Attributes:
        source: the environment's name.
        example: index of the example in the environment's training set.
        size: how many rollouts.
        version: the policy that the server sampled with when the group was dispatched.
        step: the batch that it was opened for.
        temperature: what its rollouts are sampled at.
        frozen: another model than the policy samples them, so they never go stale.
    """

    number: int
    source: str
    example: int
    size: int
    version: int
    step: int = 1
    temperature: float = 1.0
    frozen: bool = False


@dataclass
class FinishedGroup:
    """The rollouts of one prompt, in verifiers' output form, and what of them is trained on."""

    opened: OpenGroup
    rollouts: list[dict[str, Any]]
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        for rollout in self.rollouts:
            if not rollout.get("error") and not _is_finite(rollout.get("reward")):
                # A reward that is no number would spread through the mean to the whole group, and on to the weights.
                rollout["error"] = {"error": "InvalidReward", "message": f"the reward is {rollout.get('reward')!r}"}

    @property
    def clean(self) -> list[dict[str, Any]]:
        """The rollouts without an error; only these are scored and trained on."""
        return [rollout for rollout in self.rollouts if not rollout.get("error")]

    @property
    def rewards(self) -> list[float]:
        """Rewards of the clean rollouts."""
        return [float(rollout["reward"]) for rollout in self.clean]


def failed_rollouts(example: Mapping[str, Any], error: PrimeError, count: int) -> list[dict[str, Any]]:
    """Return the record of a group that ended with the environment's own exception, or with its process."""
    body = {"error": type(error).__name__, "message": error.message.splitlines()[0]}
    kept = {key: value for key, value in example.items() if key in ("example_id", "prompt", "answer", "info")}
    return [{**kept, "completion": [], "reward": 0.0, "error": dict(body), "trajectory": []} for _ in range(count)]


def rollout_metrics(groups: Sequence[FinishedGroup], samples: Sequence[Sample]) -> dict[str, float | int]:
    """Return the figures of all finished rollouts of a batch, whether or not they are trained on.

    The reward is the mean over every rollout without an error: groups that are all right or all wrong teach nothing and
    are not shipped, but leaving them out of the figure would bias it.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    clean = [rollout for group in groups for rollout in group.clean]
    rewards = [float(rollout["reward"]) for rollout in clean]
    of_groups = [group.rewards for group in groups if group.rewards]
    alike = [max(values) == min(values) for values in of_groups]
    top = max(rewards, default=0.0)
    values: dict[str, float | int] = {
        "reward/mean": statistics.fmean(rewards) if rewards else 0.0,
        "reward/min": min(rewards, default=0.0),
        "reward/max": top,
        "rollouts": len(rollouts),
        "errors": len(rollouts) - len(clean),
        "truncated": _share(bool(rollout.get("is_truncated")) for rollout in clean),
        "groups/zero_advantage": _share(alike),
        "groups/all_right": _share(same and values[0] > 0 for same, values in zip(alike, of_groups, strict=True)),
        "groups/all_wrong": _share(same and values[0] <= 0 for same, values in zip(alike, of_groups, strict=True)),
        "samples": len(samples),
        "turns/mean": statistics.fmean([len(r["trajectory"]) for r in clean]) if clean else 0.0,
        "completion_tokens/mean": statistics.fmean([_completion_tokens(r) for r in clean]) if clean else 0.0,
        **_branches(clean),
    }
    kinds = Counter(_kind_of(rollout["error"]) for rollout in rollouts if rollout.get("error"))
    values |= {f"error/{kind}": count for kind, count in kinds.items()}
    for name in sorted({name for rollout in clean for name in (rollout.get("metrics") or {})}):
        column = [float((rollout.get("metrics") or {}).get(name) or 0.0) for rollout in clean]
        values[f"metrics/{name}"] = statistics.fmean(column)
    return values


def error_counts(groups: Sequence[FinishedGroup]) -> Counter[str]:
    """Return how often each kind of error occurred."""
    return Counter(
        error_text(rollout["error"]) for group in groups for rollout in group.rollouts if rollout.get("error")
    )


def stored_rollout(rollout: Mapping[str, Any], group: FinishedGroup) -> dict[str, Any]:
    """Return the part of a rollout that is kept on disk: everything but the token columns."""
    opened = group.opened
    about = {"env": opened.source, "group": opened.number, "policy_version": opened.version}
    return {key: value for key, value in rollout.items() if key != "trajectory"} | about


def _kind_of(error: Any) -> str:
    return str(error.get("error") or "Error") if isinstance(error, Mapping) else type(error).__name__


def _branches(rollouts: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """Return how often a turn did not continue the tokens of those before it, and so began a sample of its own."""
    branches = sum(count_branches(rollout["trajectory"]) for rollout in rollouts)
    later_turns = sum(max(len(rollout["trajectory"]) - 1, 0) for rollout in rollouts)
    return {
        "samples_per_rollout": branches / len(rollouts) if rollouts else 0.0,
        "turns/broken": (branches - len(rollouts)) / later_turns if later_turns else 0.0,
    }


def _is_finite(reward: Any) -> bool:
    return isinstance(reward, int | float) and math.isfinite(reward)


def _completion_tokens(rollout: Mapping[str, Any]) -> int:
    return sum(len((step.get("tokens") or {}).get("completion_ids", ())) for step in rollout["trajectory"])


def _share(flags: Any) -> float:
    values = [bool(flag) for flag in flags]
    return sum(values) / len(values) if values else 0.0
