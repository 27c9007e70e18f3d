"""Log-probabilities from hidden states, some tokens at a time: the logits of a whole row are never held.

A row of 16,384 tokens over 151,936 entries of a vocabulary has 10 GB of fp32 logits, and as much again of gradients.
Here at most `chunk` tokens' worth exists at once, in both passes: the backward pass computes them again.

Shapes: N tokens, D hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch


def head_logprobs(
    hidden_ND: torch.Tensor,
    weight_VD: torch.Tensor,
    bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    temperatures_N: torch.Tensor,
    *,
    chunk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of the targets and entropies (without gradient), in fp32, both [N].

    Args:
        chunk: tokens whose logits are held at once.
    """
    return _ChunkedHead.apply(hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, chunk)  # type: ignore[no-any-return]


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        targets_N: torch.Tensor,
        temperatures_N: torch.Tensor,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=torch.float32)
        entropies_N, normalisers_N = torch.empty_like(logprobs_N), torch.empty_like(logprobs_N)
        for start in range(0, len(hidden_ND), chunk):
            part = slice(start, start + chunk)
            logits_CV = _logits(hidden_ND[part], weight_VD, bias_V, temperatures_N[part])
            normaliser_C = logits_CV.logsumexp(-1)
            chosen_C = logits_CV.gather(1, targets_N[part, None])[:, 0]
            probabilities_CV = (logits_CV - normaliser_C[:, None]).exp_()
            logprobs_N[part] = chosen_C - normaliser_C
            entropies_N[part] = normaliser_C - probabilities_CV.mul_(logits_CV).sum(-1)
            normalisers_N[part] = normaliser_C
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, normalisers_N)
        ctx.chunk = chunk
        ctx.mark_non_differentiable(entropies_N)
        return logprobs_N, entropies_N

    @staticmethod
    def backward(ctx: Any, grad_N: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, normalisers_N = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden_ND = torch.empty_like(hidden_ND) if wants_hidden else None
        grad_weight_VD = torch.zeros_like(weight_VD) if wants_weight else None
        grad_bias_V = torch.zeros_like(bias_V) if wants_bias else None
        for start in range(0, len(hidden_ND), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            logits_CV = _logits(hidden_ND[part], weight_VD, bias_V, temperatures_N[part])
            # d logprob / d logits = (one at the target) - probabilities, over the temperature
            scaled_C1 = (grad_N[part] / temperatures_N[part])[:, None]
            grad_CV = (logits_CV - normalisers_N[part, None]).exp_().mul_(-scaled_C1)
            grad_CV.scatter_add_(1, targets_N[part, None], scaled_C1)
            grad_CV = grad_CV.to(hidden_ND.dtype)
            if grad_hidden_ND is not None:
                grad_hidden_ND[part] = grad_CV @ weight_VD.to(hidden_ND.dtype)
            if grad_weight_VD is not None:
                grad_weight_VD += (grad_CV.T @ hidden_ND[part]).to(weight_VD.dtype)
            if grad_bias_V is not None:
                grad_bias_V += grad_CV.sum(0).to(grad_bias_V.dtype)
        return grad_hidden_ND, grad_weight_VD, grad_bias_V, None, None, None


def _logits(
    hidden_CD: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, temperatures_C: torch.Tensor
) -> torch.Tensor:
    with torch.autocast(hidden_CD.device.type, enabled=False):
        logits_CV = hidden_CD @ weight_VD.to(hidden_CD.dtype).T
        if bias_V is not None:
            logits_CV = logits_CV + bias_V.to(hidden_CD.dtype)
        return logits_CV.float().div_(temperatures_C[:, None])
