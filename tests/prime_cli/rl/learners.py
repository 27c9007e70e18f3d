"""Learners and samples that several tests use."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from prime_cli.models.folder import load_causal_model
from prime_cli.rl.step_config import LossConfig, SchedulerConfig, StepConfig
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.trainer.ranks import Ranks
from prime_cli.rl.transport import Sample


def a_learner(folder: Path, *, ranks: Ranks = Ranks(), learning_rate: float = 1e-3, **config: Any) -> Learner:
    """Return a learner over the model in `folder`, without warm-up."""
    settings = StepConfig.model_validate({"scheduler": SchedulerConfig(warmup_steps=0), "seq_len": 64, **config})
    return Learner(
        load_causal_model(folder), config=settings, loss=LossConfig(), learning_rate=learning_rate, total_steps=10,
        ranks=ranks,
    )  # fmt: skip


def random_samples(count: int, seed: int, *, longest: int = 20, prompts: int | None = None) -> list[Sample]:
    """Return samples with weights in all three components; with `prompts`, that many prompts are shared by them."""
    rng = random.Random(seed)
    shared = [[rng.randint(0, 255) for _ in range(rng.randint(2, 5))] for _ in range(prompts or 0)]
    samples = []
    for index in range(count):
        length = rng.randint(4, longest)
        prompt = rng.randint(1, length - 2)
        beginning = shared[index % len(shared)] if shared else []
        if beginning:
            length, prompt = len(beginning) + length, len(beginning)
        mask = [0.0] * prompt + [1.0] * (length - prompt)
        none = [0.0] * length
        advantage, kind = rng.uniform(-1, 1), index % 4
        samples.append(
            Sample(
                token_ids=beginning + [rng.randint(0, 255) for _ in range(length - len(beginning))],
                logprobs=[m * -rng.uniform(4, 7) for m in mask],
                advantages=[m * advantage for m in mask],
                rl_weights=mask if kind < 2 else none,
                ce_weights=mask if kind == 2 else none,
                ref_kl_weights=mask if kind == 3 else none,
                ref_logprobs=[m * -rng.uniform(4, 7) for m in mask],
                temperature=rng.choice([1.0, 0.7]),
            )
        )
    return samples


def plain_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, temperatures: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies aligned with the tokens themselves, in the plainest way.

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
