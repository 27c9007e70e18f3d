"""One optimizer step over a batch of samples: what RL and supervised fine-tuning share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from prime_cli.core.errors import PrimeError
from prime_cli.rl.step_config import LossConfig, OptimizerConfig, SchedulerConfig
from prime_cli.rl.trainer.loss import TokenTotals, loss_of, token_logprobs
from prime_cli.rl.trainer.micro_batches import MicroBatch, micro_batches_of, token_totals
from prime_cli.rl.transport import Sample


@dataclass(frozen=True)
class StepReport:
    """Facts of one step; means are over the tokens that the loss counts."""

    loss: float
    entropy: float
    mismatch_kl: float
    mismatch_kl_max: float
    ratio: float
    masked_share: float
    ref_kl: float
    grad_norm: float
    learning_rate: float
    tokens: int
    loss_tokens: int


class TrainingDiverged(PrimeError):
    """The gradient of a step is not finite; the weights are those before the step."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the gradient of step {step} is not finite", hint="lower the learning rate, or look at the rewards"
        )


class Learner:
    """A model with its optimizer and learning-rate schedule.

    Args:
        model: a causal language model; trained in place.
        total_steps: the step at which a decaying schedule reaches zero.
    """

    def __init__(
        self,
        model: Any,
        *,
        learning_rate: float,
        optimizer: OptimizerConfig,
        scheduler: SchedulerConfig,
        loss: LossConfig,
        total_steps: int,
        micro_batch_tokens: int,
        seq_len: int,
    ) -> None:
        self.model = model.train()
        self._device = str(next(model.parameters()).device)
        self._loss = loss
        self._max_norm = optimizer.max_norm
        self._micro_batch_tokens = micro_batch_tokens
        self._seq_len = seq_len
        self._optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=learning_rate,
            betas=optimizer.betas,
            weight_decay=optimizer.weight_decay,
            foreach=True,
        )
        self._learning_rate = learning_rate
        self._scheduler = scheduler
        self._total_steps = total_steps
        self._steps_taken = 0

    def step(self, samples: Sequence[Sample]) -> StepReport:
        """Take one optimizer step on `samples`; without any weighted token the weights stay as they are.

        Raises:
            TrainingDiverged: the gradient is not finite.
        """
        batches = micro_batches_of(
            samples, max_tokens=self._micro_batch_tokens, seq_len=self._seq_len, device=self._device
        )
        counts = token_totals(samples, self._seq_len)
        sums = _Sums()
        for batch in batches:
            self._backward(batch, counts, sums)
        rate = self._learning_rate * learning_rate_factor(self._steps_taken, self._total_steps, self._scheduler)
        grad_norm = 0.0
        if counts.all:
            grad_norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._max_norm))
            if not math.isfinite(grad_norm):
                raise TrainingDiverged(self._steps_taken + 1)
            for parameters in self._optimizer.param_groups:
                parameters["lr"] = rate
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._steps_taken += 1
        sampled = max(sums.sampled, 1)
        return StepReport(
            loss=sums.loss,
            entropy=sums.entropy / max(sums.counted, 1),
            mismatch_kl=sums.mismatch_kl / sampled,
            mismatch_kl_max=sums.mismatch_kl_max,
            ratio=sums.ratio / sampled,
            masked_share=sums.masked / sampled,
            ref_kl=sums.ref_kl / max(counts.ref_kl, 1),
            grad_norm=grad_norm,
            learning_rate=rate,
            tokens=sum(batch.real_tokens for batch in batches),
            loss_tokens=sums.counted,
        )

    def evaluate(self, samples: Sequence[Sample]) -> float:
        """Return the mean cross-entropy, in nats, of the tokens with a `ce` weight; nothing is trained."""
        batches = micro_batches_of(
            samples, max_tokens=self._micro_batch_tokens, seq_len=self._seq_len, device=self._device
        )
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                logits = self.model(input_ids=batch.token_ids, use_cache=False).logits
                logprobs, _ = token_logprobs(logits, batch.token_ids, batch.temperatures)
                counted = batch.columns.ce_weights != 0
                total -= float(logprobs[counted].sum())
                count += int(counted.sum())
        return total / max(count, 1)

    def _backward(self, batch: MicroBatch, counts: TokenTotals, sums: _Sums) -> None:
        logits = self.model(input_ids=batch.token_ids, use_cache=False).logits
        logprobs, entropies = token_logprobs(logits, batch.token_ids, batch.temperatures)
        parts = loss_of(logprobs, batch.columns, self._loss, totals=counts)
        parts.loss.backward()
        counted = batch.columns.counted
        sums.loss += float(parts.loss.detach())
        sums.counted += int(counted.sum())
        sums.sampled += parts.sampled_tokens
        sums.entropy += float(entropies[counted].sum())
        sums.mismatch_kl += parts.mismatch_kl_sum
        sums.mismatch_kl_max = max(sums.mismatch_kl_max, parts.mismatch_kl_max)
        sums.ratio += parts.ratio_sum
        sums.masked += parts.masked_tokens
        sums.ref_kl += parts.ref_kl_sum


@dataclass
class _Sums:
    loss: float = 0.0
    counted: int = 0
    sampled: int = 0
    entropy: float = 0.0
    mismatch_kl: float = 0.0
    mismatch_kl_max: float = 0.0
    ratio: float = 0.0
    masked: int = 0
    ref_kl: float = 0.0


def learning_rate_factor(step: int, total_steps: int, scheduler: SchedulerConfig) -> float:
    """Return the factor on the learning rate at this index (from 0): linear warm-up, hold, linear decay."""
    factor = 1.0
    if scheduler.warmup_steps:
        factor = min(1.0, (step + 1) / scheduler.warmup_steps)
    remaining = total_steps - step
    if scheduler.decay_steps and remaining <= scheduler.decay_steps:
        factor = min(factor, max(0.0, remaining / scheduler.decay_steps))
    return factor
