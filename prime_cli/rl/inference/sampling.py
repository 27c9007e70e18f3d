"""Sampling of the next token, row by row: temperature, top-k, top-p, greedy; with exact log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


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
    logits_BV: torch.Tensor, parameters: Sequence[SamplingParameters], generators: Sequence[torch.Generator]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row.

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
    # Gumbel's trick: argmax(logprob + noise) is a draw from the distribution, for all rows in one pass.
    noise_BV = _exponential_noise(logprobs_BV, generators)
    greedy_B = torch.tensor([p.temperature == 0 for p in parameters], device=logits_BV.device)
    scores_BV = torch.where(greedy_B[:, None], logprobs_BV, logprobs_BV - noise_BV.log())
    tokens_B = scores_BV.argmax(dim=-1)
    return tokens_B, logprobs_BV.gather(1, tokens_B[:, None]).squeeze(1)


def _exponential_noise(like_BV: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
    noise_BV = torch.empty_like(like_BV)
    first = generators[0]
    if all(generator is first for generator in generators):
        return noise_BV.exponential_(generator=first)
    for row, generator in enumerate(generators):
        noise_BV[row].exponential_(generator=generator)
    return noise_BV


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
