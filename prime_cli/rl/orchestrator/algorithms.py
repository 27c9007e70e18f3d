"""What the rollouts of a group teach: each algorithm is one class that turns them into weighted samples.

    GroupMean (grpo)          reward less the group's mean
    MaximumLikelihood (max_rl)  the same, divided by the mean
    RunningBaseline (rae)     reward less a running mean of its agent's rewards
    Echo (echo)               grpo, and the environment's own words as demonstrations
    OnPolicyDistillation (opd)  the policy's tokens, judged by a teacher's log-probabilities
    Distillation (sft)        the teacher's tokens as demonstrations

The trainer knows none of this: it sees tokens with an advantage and a weight in each component of the loss.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from prime_cli.rl.algorithm_config import AlgorithmConfig
from prime_cli.rl.curriculum_config import LengthPenaltyConfig
from prime_cli.rl.orchestrator.length_penalty import length_of, shortened
from prime_cli.rl.orchestrator.samples import environment_spans, samples_of_rollout
from prime_cli.rl.transport import Sample

Rollout = Mapping[str, Any]

Score = Callable[[Sequence[int]], Awaitable[list[float]]]
"""Returns a teacher's log-probabilities of the tokens, a 0 for the first; the last ones may be left out."""

Encode = Callable[[str], list[int]]
"""Returns the tokens of a text, without any marker."""


class Algorithm(Protocol):
    """Turns the rollouts of one group, all without an error, into samples; what teaches nothing is left out."""

    async def samples(self, rollouts: Sequence[Rollout], *, temperature: float) -> list[Sample]:
        """Return the weighted samples of the rollouts, which were sampled at `temperature`.

        Raises:
            TokensMissing: the server that sampled returned no token ids.
        """

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where the algorithm of that state was."""


class _Stateless:
    """Base of the algorithms that remember nothing from group to group."""

    def state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """There is nothing to go on from."""


class RewardAlgorithm(_Stateless):
    """Base of the algorithms that learn from rewards: one advantage per rollout, for all its sampled tokens."""

    def advantages(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Return one advantage per rollout."""
        raise NotImplementedError

    async def samples(self, rollouts: Sequence[Rollout], *, temperature: float) -> list[Sample]:
        """Return the samples of the rollouts whose advantage is not zero."""
        samples: list[Sample] = []
        for rollout, advantage in zip(rollouts, self.advantages(rollouts), strict=True):
            if advantage != 0.0:
                samples += samples_of_rollout(rollout["trajectory"], advantage=advantage, temperature=temperature)
        return samples


class GroupMean(RewardAlgorithm):
    """Reward less the group's mean, without dividing by the standard deviation.

    GRPO (arXiv:2402.03300) divides; leaving the division out removes its bias towards groups that are nearly all right
    or nearly all wrong (Dr. GRPO, arXiv:2503.20783). With a length penalty, R is what that leaves of the reward.
    """

    def __init__(self, length_penalty: LengthPenaltyConfig | None = None) -> None:
        self._length_penalty = length_penalty

    def advantages(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Return R - mean(R)."""
        rewards = _rewards(rollouts)
        if self._length_penalty is not None:
            lengths = [length_of(rollout["trajectory"]) for rollout in rollouts]
            rewards = shortened(rewards, lengths, self._length_penalty)
        if min(rewards) == max(rewards):
            return [0.0] * len(rewards)  # exactly, however their mean is rounded
        mean = sum(rewards) / len(rewards)
        return [reward - mean for reward in rewards]


class MaximumLikelihood(RewardAlgorithm):
    """Reward less the group's mean, divided by the mean: hard prompts count more (MaxRL, arXiv:2602.02710).

    With rewards of 0 and 1 this estimates the gradient of the logarithm of the chance of success, where GRPO estimates
    that of the chance itself.
    """

    def advantages(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Return (R - m) / m, or zeros when the mean m is not positive."""
        rewards = _rewards(rollouts)
        mean = sum(rewards) / len(rewards)
        if mean <= 0 or min(rewards) == max(rewards):
            return [0.0] * len(rewards)
        return [(reward - mean) / mean for reward in rewards]


class RunningBaseline(RewardAlgorithm):
    """Reward less a running mean of the rewards of the same agent: role-conditioned advantages (arXiv:2506.24119).

    Needs no group, so one rollout per example will do. The baseline of an agent starts at 0.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._baselines: dict[str, float] = defaultdict(float)

    def advantages(self, rollouts: Sequence[Rollout]) -> list[float]:
        """Return R - b for each rollout in turn, b moving towards R after each."""
        values = []
        for rollout in rollouts:
            agent, reward = str(rollout.get("agent") or ""), float(rollout["reward"])
            values.append(reward - self._baselines[agent])
            self._baselines[agent] = self._decay * self._baselines[agent] + (1 - self._decay) * reward
        return values

    def state(self) -> dict[str, Any]:
        """Return the baselines."""
        return {"baselines": dict(self._baselines)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the baselines of `state`."""
        self._baselines = defaultdict(float, state["baselines"])


class Echo(_Stateless):
    """GRPO on the sampled tokens; what the environment answered to them counts as a demonstration.

    A message of a role in `weights` that follows a turn of the model gets that cross-entropy weight on the tokens of
    its body; the template's markers around it get none. A policy that predicts its tools learns what they do.
    """

    def __init__(self, weights: Mapping[str, float], encode: Encode) -> None:
        self._weights = weights
        self._encode = encode
        self._group_mean = GroupMean()

    async def samples(self, rollouts: Sequence[Rollout], *, temperature: float) -> list[Sample]:
        """Return the samples that have an advantage, or words of the environment, or both."""
        kept: list[Sample] = []
        for rollout, advantage in zip(rollouts, self._group_mean.advantages(rollouts), strict=True):
            trajectory = rollout["trajectory"]
            samples = samples_of_rollout(trajectory, advantage=advantage, temperature=temperature)
            for span in environment_spans(trajectory, samples):
                for message in span.messages:
                    self._weigh(span.sample, span.start, span.end, message)
            if advantage == 0.0:
                for sample in samples:
                    sample.rl_weights = [0.0] * len(sample.token_ids)
            kept += [sample for sample in samples if any(sample.rl_weights) or any(sample.ce_weights)]
        return kept

    def _weigh(self, sample: Sample, start: int, end: int, message: Mapping[str, Any]) -> None:
        weight = self._weights.get(str(message.get("role")), 0.0)
        content = message.get("content")
        if not weight or not isinstance(content, str) or not content:
            return
        body = self._encode(content)
        for at in range(start, end - len(body) + 1):
            if body and sample.token_ids[at : at + len(body)] == body:
                sample.ce_weights[at : at + len(body)] = [weight] * len(body)
                return


class OnPolicyDistillation(_Stateless):
    """The policy samples, and a frozen teacher's log-probabilities of those tokens pull on each of them.

    Rewards are not used. On-policy distillation (arXiv:2306.13649) with the reverse KL, token by token.
    """

    def __init__(self, score: Score) -> None:
        self._score = score

    async def samples(self, rollouts: Sequence[Rollout], *, temperature: float) -> list[Sample]:
        """Return all samples, each with the teacher's log-probabilities."""
        samples = _all_samples(rollouts, temperature)
        scores = await asyncio.gather(*(self._score(sample.token_ids) for sample in samples))
        for sample, logprobs in zip(samples, scores, strict=True):
            rest = [0.0] * (len(sample.token_ids) - len(logprobs))
            sample.ref_kl_weights = sample.rl_weights[: len(logprobs)] + rest
            sample.ref_logprobs = logprobs + rest
            sample.rl_weights = [0.0] * len(sample.token_ids)
        return samples


class Distillation(_Stateless):
    """The teacher samples, and its tokens are demonstrations. Rewards are not used."""

    async def samples(self, rollouts: Sequence[Rollout], *, temperature: float) -> list[Sample]:
        """Return all samples; the policy learns them at temperature 1, whatever the teacher sampled at."""
        samples = _all_samples(rollouts, 1.0)
        for sample in samples:
            sample.ce_weights, sample.rl_weights = sample.rl_weights, [0.0] * len(sample.token_ids)
        return samples


def algorithm_of(config: AlgorithmConfig, *, score: Score | None = None, encode: Encode | None = None) -> Algorithm:
    """Return the configured algorithm; `score` serves those that need a teacher, `encode` those that read messages."""
    if config.type == "opd":
        assert score is not None, "the configuration names a teacher"
        return OnPolicyDistillation(score)
    if config.type == "echo":
        assert encode is not None, "the orchestrator loads the tokenizer"
        return Echo(config.echo_weights, encode)
    if config.type == "rae":
        return RunningBaseline(config.rae_decay)
    if config.type == "grpo":
        return GroupMean(config.length_penalty)
    simple: dict[str, Algorithm] = {"max_rl": MaximumLikelihood(), "sft": Distillation()}
    return simple[config.type]


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    return [float(rollout["reward"]) for rollout in rollouts]


def _all_samples(rollouts: Sequence[Rollout], temperature: float) -> list[Sample]:
    return [
        sample
        for rollout in rollouts
        for sample in samples_of_rollout(rollout["trajectory"], advantage=0.0, temperature=temperature)
    ]
