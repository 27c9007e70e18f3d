"""Advantages of the rollouts of one group."""

from __future__ import annotations

from collections.abc import Sequence


def group_mean_advantages(rewards: Sequence[float]) -> list[float]:
    """Return reward minus the group's mean, without dividing by the standard deviation.

    GRPO (arXiv:2402.03300) divides; leaving the division out removes its bias towards groups that are nearly all right
    or nearly all wrong (Dr. GRPO, arXiv:2503.20783).
    """
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]
