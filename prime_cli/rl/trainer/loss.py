"""The loss of one micro batch: two components over per-token weights, each divided by its global token count.

Shapes: all tensors are [B, T]; padding and prompt tokens carry weight 0 in both components.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prime_cli.rl.config import LossConfig


@dataclass
class TokenColumns:
    """What the trainer knows of each token of a micro batch."""

    inference_logprobs: torch.Tensor
    advantages: torch.Tensor
    rl_weights: torch.Tensor
    ce_weights: torch.Tensor


@dataclass
class LossParts:
    """The loss to run backward on, and sums for the record (detached; divide by `rl_tokens` for means)."""

    loss: torch.Tensor
    rl_tokens: int
    mismatch_kl_sum: float
    mismatch_kl_max: float
    ratio_sum: float
    masked_tokens: int


def loss_of(
    logprobs: torch.Tensor, columns: TokenColumns, config: LossConfig, *, rl_total: int, ce_total: int
) -> LossParts:
    """Return this micro batch's share of the loss of the whole batch.

    With p the trainer's probability of a sampled token, q the behaviour policy's, r = p / q and A its advantage, a
    token costs `-keep * A * r + kl_tau * log(r)^2`. A token is not kept when its probability moved too far in the
    direction that the advantage pushes (p - q > high for A > 0, q - p > low else): the trust region of DPPO in
    probability space, which unlike a ratio clip does not cut rare tokens first. The second component is `-log p`, for
    demonstrations.

    Args:
        rl_total, ce_total: tokens with a non-zero weight in the *whole* batch, over all micro batches. Dividing by them
            and not by this micro batch's own counts is what makes the gradient independent of the split.
    """
    rl_mask = columns.rl_weights != 0
    log_ratio = torch.where(rl_mask, logprobs - columns.inference_logprobs, 0.0)
    ratio = log_ratio.exp()
    with torch.no_grad():
        moved = logprobs.exp() - columns.inference_logprobs.exp()
        dropped = torch.where(columns.advantages > 0, moved > config.dppo_mask_high, moved < -config.dppo_mask_low)
        keep = (~dropped).to(logprobs.dtype)
    rl_tokens = -keep * columns.advantages * ratio + config.kl_tau * log_ratio.square()
    loss = (rl_tokens * columns.rl_weights).sum() / max(rl_total, 1)
    if ce_total:
        ce_mask = columns.ce_weights != 0
        loss = loss - (torch.where(ce_mask, logprobs, 0.0) * columns.ce_weights).sum() / ce_total
    with torch.no_grad():
        mismatch = (ratio - log_ratio - 1)[rl_mask]
        return LossParts(
            loss=loss,
            rl_tokens=int(rl_mask.sum()),
            mismatch_kl_sum=float(mismatch.sum()),
            mismatch_kl_max=float(mismatch.max()) if mismatch.numel() else 0.0,
            ratio_sum=float(ratio[rl_mask].sum()),
            masked_tokens=int((dropped & rl_mask).sum()),
        )


def token_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, temperatures: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies aligned with the tokens themselves, computed in fp32.

    Args:
        logits: [B, T, V]. token_ids: [B, T]. temperatures: [B], those the tokens were sampled at.

    Returns:
        Two [B, T] tensors; index t belongs to token t. Index 0 has no prediction and is 0. Entropy has no gradient.
    """
    scaled = logits[:, :-1].float() / temperatures[:, None, None]
    logprobs_BTV = torch.log_softmax(scaled, dim=-1)
    chosen = logprobs_BTV.gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    with torch.no_grad():
        entropy = -(logprobs_BTV.exp() * logprobs_BTV).sum(-1)
    pad = (1, 0)
    return torch.nn.functional.pad(chosen, pad), torch.nn.functional.pad(entropy, pad)
