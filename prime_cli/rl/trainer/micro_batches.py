"""Cuts a batch into micro batches of padded rows.

Rows are padded on the right: under a causal mask no real token ever sees the padding, so no further mask is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prime_cli.rl.trainer.loss import TokenColumns, TokenTotals
from prime_cli.rl.transport import Sample


@dataclass
class MicroBatch:
    """Rows for one forward pass. token_ids and all columns: [B, T]; temperatures: [B]."""

    token_ids: torch.Tensor
    temperatures: torch.Tensor
    columns: TokenColumns
    real_tokens: int


def micro_batches_of(
    samples: Sequence[Sample], *, max_tokens: int, seq_len: int, device: str = "cpu"
) -> list[MicroBatch]:
    """Group samples of similar length so that no micro batch exceeds `max_tokens` padded tokens (one row always fits).

    Samples longer than `seq_len` are cut at the end.
    """
    ordered = sorted(samples, key=lambda sample: len(sample.token_ids))
    groups: list[list[Sample]] = []
    for sample in ordered:
        length = min(len(sample.token_ids), seq_len)
        if groups and (len(groups[-1]) + 1) * length <= max_tokens:
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return [_padded(group, seq_len, device) for group in groups]


def _padded(samples: Sequence[Sample], seq_len: int, device: str) -> MicroBatch:
    width = min(max(len(sample.token_ids) for sample in samples), seq_len)

    def column(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        cut = [list(row[:width]) + [0] * (width - len(row[:width])) for row in rows]
        return torch.tensor(cut, dtype=dtype, device=device)

    return MicroBatch(
        token_ids=column([sample.token_ids for sample in samples], torch.long),
        temperatures=torch.tensor([sample.temperature for sample in samples], device=device),
        columns=TokenColumns(
            inference_logprobs=column([sample.logprobs for sample in samples], torch.float32),
            advantages=column([sample.advantages for sample in samples], torch.float32),
            rl_weights=column([sample.rl_weights for sample in samples], torch.float32),
            ce_weights=column([sample.ce_weights for sample in samples], torch.float32),
            ref_kl_weights=column([sample.ref_kl_weights for sample in samples], torch.float32),
            ref_logprobs=column([sample.ref_logprobs for sample in samples], torch.float32),
            documents=torch.arange(len(samples), device=device)[:, None].expand(-1, width),
        ),
        real_tokens=sum(min(len(sample.token_ids), seq_len) for sample in samples),
    )


def token_totals(samples: Sequence[Sample], seq_len: int) -> TokenTotals:
    """Return how many tokens of a batch count in each component of the loss, once samples are cut at `seq_len`."""

    def count(column: str) -> int:
        return sum(weight != 0 for sample in samples for weight in getattr(sample, column)[:seq_len])

    return TokenTotals(rl=count("rl_weights"), ce=count("ce_weights"), ref_kl=count("ref_kl_weights"))
