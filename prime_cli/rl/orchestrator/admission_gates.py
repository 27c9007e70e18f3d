"""Which finished groups join a batch at all. What is refused, the batch refills with other groups.

AdvantageRange (advantage_range)       not those whose advantages all lie in a range: by default, all are zero
OnlineDifficulty (online_difficulty)   not those that are all right or all wrong
"""

from __future__ import annotations

from collections.abc import Sequence

from prime_cli.rl.curriculum_config import CurriculumConfig, FilterConfig, GateConfig
from prime_cli.rl.orchestrator.curriculum import AdmissionGate
from prime_cli.rl.orchestrator.groups import FinishedGroup
from prime_cli.rl.transport import Sample


class AdvantageRange:
    """Refuses a group whose advantages all lie from `low` to `high`, which hold 0 between them.

    A group that teaches otherwise, as demonstrations or by a teacher's judgement, is admitted.
    """

    def __init__(self, name: str, low: float = 0.0, high: float = 0.0) -> None:
        assert low <= 0.0 <= high, "what has no advantage is no longer among the samples"
        self.name = name
        self._low = low
        self._high = high

    def admits(self, group: FinishedGroup) -> bool:
        """Say whether the group joins a batch."""
        return any(self._teaches(sample) for sample in group.samples)

    def _teaches(self, sample: Sample) -> bool:
        if any(sample.ce_weights) or any(sample.ref_kl_weights):
            return True
        pairs = zip(sample.rl_weights, sample.advantages, strict=True)
        return any(weight and not self._low <= advantage <= self._high for weight, advantage in pairs)


class OnlineDifficulty:
    """Refuses a group whose mean reward is not above `low` and below `high`: too hard or too easy at the moment."""

    def __init__(self, name: str, low: float = 0.0, high: float = 1.0) -> None:
        self.name = name
        self._low = low
        self._high = high

    def admits(self, group: FinishedGroup) -> bool:
        """Say whether the group joins a batch."""
        rewards = group.rewards
        return bool(rewards) and self._low < sum(rewards) / len(rewards) < self._high


def gates_of(curriculum: CurriculumConfig, filters: Sequence[FilterConfig]) -> list[AdmissionGate]:
    """Return the gates of an environment: its own, and what filters before the batch ask of whole groups."""
    gates = [gate_of(name, config) for name, config in curriculum.gates.items()]
    if any(each.type == "zero_advantage" and each.enforces for each in filters):
        gates.append(AdvantageRange("zero_advantage"))
    return gates


def gate_of(name: str, config: GateConfig) -> AdmissionGate:
    """Return the configured gate."""
    if config.type == "online_difficulty":
        return OnlineDifficulty(name, config.min_reward, config.max_reward)
    return AdvantageRange(name, config.reject_min, config.reject_max)
