"""Optimizers and learning-rate schedules.

adamw   decoupled weight decay (arXiv:1711.05101)
sgd     with Nesterov momentum
muon    momentum made orthogonal, for the matrices of the hidden layers (arXiv:2502.16982), its steps scaled to those
        of AdamW, which takes the embeddings, the head, norms and biases
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from prime_cli.rl.step_config import OptimizerConfig, SchedulerConfig

_SGD_MOMENTUM, _MUON_MOMENTUM = 0.9, 0.95


class Optimizers:
    """The optimizers of one model, stepped as one."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)

    def step(self, learning_rate: float) -> None:
        """Take a step at this rate."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = learning_rate
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)


def optimizers_of(model: Any, config: OptimizerConfig, learning_rate: float) -> Optimizers:
    """Return what trains the parameters of `model` that want a gradient."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decay = config.weight_decay
    if config.type == "sgd":
        momentum = _SGD_MOMENTUM if config.momentum is None else config.momentum
        parts: list[torch.optim.Optimizer] = [
            torch.optim.SGD(trained, lr=learning_rate, momentum=momentum, nesterov=momentum > 0, weight_decay=decay)
        ]
        return Optimizers(parts)

    def adamw(parameters: list[Any]) -> torch.optim.Optimizer:
        adam: torch.optim.Optimizer = torch.optim.AdamW(
            parameters, lr=learning_rate, betas=config.betas, weight_decay=decay, foreach=True
        )
        return adam

    if config.type == "adamw":
        return Optimizers([adamw(trained)])
    outer = {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings()) if module}
    matrices = [parameter for parameter in trained if parameter.ndim == 2 and id(parameter) not in outer]
    chosen = {id(parameter) for parameter in matrices}
    rest = [parameter for parameter in trained if id(parameter) not in chosen]
    momentum = _MUON_MOMENTUM if config.momentum is None else config.momentum
    muon = torch.optim.Muon(
        matrices, lr=learning_rate, momentum=momentum, weight_decay=decay, adjust_lr_fn="match_rms_adamw"
    )
    return Optimizers([muon, adamw(rest)] if rest else [muon])


def learning_rate_at(step: int, total_steps: int, base: float, scheduler: SchedulerConfig) -> float:
    """Return the learning rate of the step with this index (from 0) out of `total_steps`."""
    warmup = min(1.0, (step + 1) / scheduler.warmup_steps) if scheduler.warmup_steps else 1.0
    decay = 1.0
    remaining = total_steps - step
    if scheduler.type == "linear" and scheduler.decay_steps:
        decay = min(1.0, max(0.0, remaining / scheduler.decay_steps))
    elif scheduler.type == "cosine":
        span = max(1, total_steps - scheduler.warmup_steps)
        done = min(1.0, max(0.0, (step - scheduler.warmup_steps) / span))
        decay = (1 + math.cos(math.pi * done)) / 2
    floor = min(scheduler.min_lr, base)
    return min(base * warmup, floor + (base - floor) * decay)
