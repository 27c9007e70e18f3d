"""What every trainer of the contest is given, and what is measured of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from string import ascii_lowercase

REWARD_GOAL = 0.8
WINDOW = 5  # steps of the moving average
TOOL_SIGMA, TOOL_MAX_MEDIANS = 1.2, 100


@dataclass(frozen=True)
class Recipe:
    """One training: the warmed-up weights, the strings and the seed come with the run.

    The learning rate rises over `warmup_steps` and stays; AdamW without weight decay, the gradient clipped at norm 1.
    An advantage is the reward less the mean of its group; the loss is a mean over all tokens of the batch.
    """

    steps: int = 40
    prompts: int = 16
    rollouts: int = 16
    learning_rate: float = 6e-4
    warmup_steps: int = 10
    betas: tuple[float, float] = (0.9, 0.95)
    max_tokens: int = 12
    temperature: float = 1.0
    tool_median_s: float = 0.0

    @property
    def tool(self) -> dict[str, float]:
        """How long the tool takes: its times are log-normal, and bounded."""
        return {
            "tool_median_s": self.tool_median_s,
            "tool_sigma": TOOL_SIGMA,
            "tool_max_s": TOOL_MAX_MEDIANS * self.tool_median_s,
        }


@dataclass
class Trace:
    """What one trainer did. Seconds count from the moment at which it asked for its first rollout.

    `seconds[s]` is when step s was trained, `rewards[s]` the mean reward of its rollouts; `cpu_seconds` is the
    processor time of all its processes, the start included.
    """

    trainer: str
    startup_s: float
    cpu_seconds: float
    seconds: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    held_out: float = 0.0

    @property
    def seconds_per_step(self) -> float:
        """Mean over the run."""
        return self.seconds[-1] / len(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Sampled tokens of all steps by the time that the last of them was trained."""
        return sum(self.tokens) / self.seconds[-1]

    @property
    def final_reward(self) -> float:
        """Mean over the last `WINDOW` steps."""
        return _mean(self.rewards[-WINDOW:])

    @property
    def seconds_to_goal(self) -> float | None:
        """When the moving average of the reward reached `REWARD_GOAL`; None if it did not."""
        for end in range(WINDOW, len(self.rewards) + 1):
            if _mean(self.rewards[end - WINDOW : end]) >= REWARD_GOAL:
                return self.seconds[end - 1]
        return None


def draw_strings(seed: int, num_train: int, num_held_out: int = 256) -> dict[str, list[str]]:
    """Return different strings of 4 to 8 letters, `train` and `held_out`."""
    rng = random.Random(seed)
    drawn: dict[str, None] = {}
    while len(drawn) < num_train + num_held_out:
        drawn["".join(rng.choices(ascii_lowercase, k=rng.randint(4, 8)))] = None
    texts = list(drawn)
    return {"train": texts[:num_train], "held_out": texts[num_train:]}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
