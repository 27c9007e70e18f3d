"""The loss of one micro batch: three components over per-token weights, each divided by its global token count.

    loss = sum(w_rl * rl) / N_rl + sum(w_ce * ce) / N_ce + sum(w_ref * ref_kl) / N_ref

`rl` learns from advantages, `ce` from demonstrations, `ref_kl` from a teacher's log-probabilities. A sum goes over the
tokens of this micro batch, an N over the tokens with a non-zero weight in the *whole* batch, all micro batches and all
ranks together: that is what makes the gradient independent of how the batch is packed and split.

With p the trainer's probability of a token, q that of the policy which sampled it, r = p / q and A its advantage:

    dppo                 -keep * A * r + kl_tau * log(r)^2, keep = not (p - q > high if A > 0 else q - p > low).
                         Drops what moved too far the way its advantage pushes, by a difference of probabilities, which
                         unlike a ratio does not cut rare tokens first (decision 2; the divergence mask of DPPO,
                         arXiv:2602.04879).
    ipo                  the same with keep = |p - q| <= threshold, whichever way it moved.
    ratio_clip           -min(r * A, clip(r, 1 - low, 1 + high) * A) + kl_tau * log(r)^2: PPO (arXiv:1707.06347, eq. 7),
                         as GRPO uses it (arXiv:2402.03300, eq. 3).
    sequence_ratio_clip  the same with one ratio per sequence, s = exp(mean of log(r) over its tokens): GSPO
                         (arXiv:2507.18071, eq. 5 and 7). GSPO takes the mean over sequences, we over tokens.
    ref_kl               -keep * g * r + kl_tau * log(r)^2, g = log(p_ref / p) held constant, keep = p - q >= -low: the
                         policy gradient of the reverse KL to a teacher, the token's own log-ratio as its advantage
                         (on-policy distillation, arXiv:2306.13649).

Shapes: all tensors are [B, T]; padding and prompt tokens carry weight 0 in all components.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prime_cli.rl.step_config import LossConfig

_REF_KL_MASK_LOW = 0.2


@dataclass
class TokenColumns:
    """What the trainer knows of each token of a micro batch; `documents` numbers the sequence that a token is of."""

    inference_logprobs: torch.Tensor
    advantages: torch.Tensor
    rl_weights: torch.Tensor
    ce_weights: torch.Tensor
    ref_kl_weights: torch.Tensor
    ref_logprobs: torch.Tensor
    documents: torch.Tensor

    @property
    def counted(self) -> torch.Tensor:
        """The tokens that any component weighs."""
        return (self.rl_weights != 0) | (self.ce_weights != 0) | (self.ref_kl_weights != 0)


@dataclass(frozen=True)
class TokenTotals:
    """Tokens with a non-zero weight in the whole batch, for each component."""

    rl: int = 0
    ce: int = 0
    ref_kl: int = 0

    @property
    def all(self) -> int:
        """All of them; a token with two weights counts twice."""
        return self.rl + self.ce + self.ref_kl


@dataclass
class LossParts:
    """The loss to run backward on, the tokens that no gradient comes from, and sums over the tokens with a behaviour
    policy (detached) for the record.
    """

    loss: torch.Tensor
    dropped: torch.Tensor
    sampled_tokens: int
    mismatch_kl_sum: float
    mismatch_kl_max: float
    ratio_sum: float
    masked_tokens: int
    ref_kl_sum: float


def loss_of(logprobs: torch.Tensor, columns: TokenColumns, config: LossConfig, *, totals: TokenTotals) -> LossParts:
    """Return this micro batch's share of the loss of the whole batch, which has `totals` tokens."""
    rl_mask, ce_mask, ref_mask = columns.rl_weights != 0, columns.ce_weights != 0, columns.ref_kl_weights != 0
    sampled = rl_mask | ref_mask
    # The masks come first: what stands in a column where its weight is 0 must reach neither the loss nor a gradient.
    log_ratio = torch.where(sampled, logprobs - columns.inference_logprobs, 0.0)
    with torch.no_grad():
        moved = torch.where(sampled, logprobs.exp() - columns.inference_logprobs.exp(), 0.0)
        teacher = torch.where(ref_mask, columns.ref_logprobs - logprobs, 0.0)
    drift = config.kl_tau * log_ratio.square()
    gain, dropped = _rl_gain(log_ratio, moved, columns, config)
    lost = moved < -_REF_KL_MASK_LOW
    ref_gain = torch.where(lost, 0.0, teacher * log_ratio.exp())
    loss = ((drift - config.adv_tau * gain) * columns.rl_weights).sum() / max(totals.rl, 1)
    loss = loss - (torch.where(ce_mask, logprobs, 0.0) * columns.ce_weights).sum() / max(totals.ce, 1)
    loss = loss + ((drift - ref_gain) * columns.ref_kl_weights).sum() / max(totals.ref_kl, 1)
    with torch.no_grad():
        ratio = log_ratio.exp()
        mismatch = (ratio - log_ratio - 1)[sampled]
        dropped = (dropped & rl_mask) | (lost & ref_mask)
        return LossParts(
            loss=loss,
            dropped=dropped,
            sampled_tokens=int(sampled.sum()),
            mismatch_kl_sum=float(mismatch.sum()),
            mismatch_kl_max=float(mismatch.max()) if mismatch.numel() else 0.0,
            ratio_sum=float(ratio[sampled].sum()),
            masked_tokens=int(dropped.sum()),
            ref_kl_sum=-float(teacher.sum()),
        )


def _rl_gain(
    log_ratio: torch.Tensor, moved: torch.Tensor, columns: TokenColumns, config: LossConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what each token gains (a loss is minus that), and the tokens that no gradient comes from."""
    advantages = columns.advantages
    if config.type in ("dppo", "ipo"):
        if config.type == "dppo":
            dropped = torch.where(advantages > 0, moved > config.dppo_mask_high, moved < -config.dppo_mask_low)
        else:
            dropped = moved.abs() > config.ipo_threshold
        return torch.where(dropped, 0.0, advantages * log_ratio.exp()), dropped
    if config.type == "sequence_ratio_clip":
        log_ratio = _mean_per_document(log_ratio, columns.rl_weights != 0, columns.documents)
    low, high = config.clip
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - low, 1 + high) * advantages
    return torch.minimum(ratio * advantages, clipped), (clipped < ratio * advantages).detach()


def _mean_per_document(values: torch.Tensor, mask: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Return for each token the mean of `values` over the masked tokens of its document; 0 where it has none."""
    flat = documents.flatten()
    zeros = torch.zeros(int(documents.max()) + 1, dtype=values.dtype, device=values.device)
    sums = zeros.index_add(0, flat, torch.where(mask, values, 0.0).flatten())
    counts = zeros.index_add(0, flat, mask.to(values.dtype).flatten())
    return (sums / counts.clamp(min=1))[flat].view_as(values)
