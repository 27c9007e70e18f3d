"""Sampling of the next token, row by row: temperature, top-k, top-p, greedy; with exact log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UINT64 = 2**64 - 1


@dataclass(frozen=True)
class SamplingParameters:
    """How one request samples. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 cut nothing."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


def sample(
    logits_BV: torch.Tensor, parameters: Sequence[SamplingParameters], uniforms_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row, by the row's number from (0, 1).

    Returns:
        tokens_B, and logprobs_B under the distribution that was sampled from (temperature and cuts applied), which is
        what a trainer needs as the behaviour policy. A greedy token's log-probability is taken at temperature 1.
    """
    temperatures = torch.tensor([p.temperature if p.temperature > 0 else 1.0 for p in parameters])
    scaled_BV = logits_BV.float() / temperatures.to(logits_BV.device)[:, None]
    for row, p in enumerate(parameters):
        if p.temperature > 0 and (p.top_k > 0 or p.top_p < 1.0):
            scaled_BV[row] = _cut(scaled_BV[row], p)
    logprobs_BV = torch.log_softmax(scaled_BV, dim=-1)
    # The token at which the summed probabilities pass the number; in double precision, so that rare ones keep theirs.
    reached_BV = logprobs_BV.exp().cumsum(dim=-1, dtype=torch.float64)
    wanted_B1 = uniforms_B.to(logits_BV.device)[:, None] * reached_BV[:, -1:]
    tokens_B = torch.searchsorted(reached_BV, wanted_B1, right=True).squeeze(1)
    if any(p.temperature == 0 for p in parameters):
        greedy_B = torch.tensor([p.temperature == 0 for p in parameters], device=logits_BV.device)
        tokens_B = torch.where(greedy_B, logprobs_BV.argmax(dim=-1), tokens_B)
    return tokens_B, logprobs_BV.gather(1, tokens_B[:, None]).squeeze(1)


def uniforms(seeds: Sequence[int], draws: Sequence[int]) -> torch.Tensor:
    """Return for each seed its draw of that number: numbers from (0, 1), without a generator that has a state.

    A draw is a hash (SplitMix64, doi:10.1145/2714064.2660195) of seed and number, so it depends on nothing else.
    """
    seeds_B = np.array([seed & _UINT64 for seed in seeds], dtype=np.uint64)
    hashes_B = _mixed(_mixed(seeds_B) + np.array(draws, dtype=np.uint64) * _GOLDEN)
    return torch.from_numpy(((hashes_B >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def _mixed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values = values + _GOLDEN  # unsigned numbers wrap around
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray[Any, Any] = values ^ (values >> np.uint64(31))
    return mixed


def _cut(logits_V: torch.Tensor, parameters: SamplingParameters) -> torch.Tensor:
    if parameters.top_k > 0:
        smallest = logits_V.topk(min(parameters.top_k, logits_V.numel())).values[-1]
        logits_V = logits_V.masked_fill(logits_V < smallest, -torch.inf)
    if parameters.top_p < 1.0:
        ordered_V, indices_V = logits_V.sort(descending=True)
        before_V = ordered_V.softmax(-1).cumsum(-1) - ordered_V.softmax(-1)
        dropped = indices_V[before_V >= parameters.top_p]
        logits_V = logits_V.index_fill(0, dropped, -torch.inf)
    return logits_V
