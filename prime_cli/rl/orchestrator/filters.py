"""Which samples are trained on. A filter that does not enforce counts what it would have dropped.

    Gibberish (gibberish)     a rare token that the policy itself did not expect
    Repetition (repetition)   a long stretch of tokens that were all but certain, as in a loop

What has no advantage (zero_advantage) leaves no sample at all: before a batch that is a matter of the whole group, see
`admission_gates.AdvantageRange`, and once it is cut such samples are never sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from prime_cli.rl.curriculum_config import FilterConfig
from prime_cli.rl.orchestrator.curriculum import Filter
from prime_cli.rl.transport import Sample


class Gibberish:
    """Catches a sample with a sampled token whose id is above `threshold` and whose log-probability is below that of a
    uniform guess over the vocabulary by more than `offset`.
    """

    name = "gibberish"

    def __init__(self, vocabulary_size: int, *, threshold: int, offset: float, enforce: bool) -> None:
        self.enforce = enforce
        self._threshold = threshold
        self._least = -math.log(vocabulary_size) - offset

    def catches(self, sample: Sample) -> bool:
        """Say whether the sample should not be trained on."""
        rare = np.asarray(sample.token_ids) > self._threshold
        return bool(np.any(rare & (np.asarray(sample.logprobs) < self._least) & _sampled(sample)))


class Repetition:
    """Catches a sample with `window` sampled tokens in a row that each had a probability above `probability`."""

    name = "repetition"

    def __init__(self, *, window: int, probability: float, enforce: bool) -> None:
        self.enforce = enforce
        self._window = window
        self._least = math.log(probability)

    def catches(self, sample: Sample) -> bool:
        """Say whether the sample should not be trained on."""
        if len(sample.token_ids) < self._window:
            return False
        certain = (np.asarray(sample.logprobs) > self._least) & _sampled(sample)
        others = np.flatnonzero(~np.concatenate([[False], certain, [False]]))
        return bool(np.max(np.diff(others)) - 1 >= self._window)


def filters_of(configs: Sequence[FilterConfig], vocabulary_size: int) -> list[Filter]:
    """Return the configured filters of samples."""
    found = [filter_of(config, vocabulary_size) for config in configs]
    return [each for each in found if each is not None]


def filter_of(config: FilterConfig, vocabulary_size: int) -> Filter | None:
    """Return the configured filter of samples, or None for one that looks at whole groups."""
    if config.type == "gibberish":
        return Gibberish(
            vocabulary_size,
            threshold=config.token_id_threshold,
            offset=config.logprob_offset,
            enforce=config.enforces,
        )
    if config.type == "repetition":
        return Repetition(window=config.window, probability=config.prob_threshold, enforce=config.enforces)
    return None


def _sampled(sample: Sample) -> np.ndarray:
    """Return which tokens a model sampled: they carry a weight, and the environment's have no log-probability."""
    weighed = (np.asarray(sample.rl_weights) != 0) | (np.asarray(sample.ref_kl_weights) != 0)
    demonstrated = (np.asarray(sample.ce_weights) != 0) & (np.asarray(sample.logprobs) != 0)
    sampled: np.ndarray = weighed | demonstrated
    return sampled
