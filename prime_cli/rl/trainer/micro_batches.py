"""Cuts a batch into micro batches: rows in which whole samples stand one after the other, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prime_cli.rl.trainer.loss import TokenColumns, TokenTotals
from prime_cli.rl.trainer.packing import Row, pack, spread
from prime_cli.rl.transport import Sample


@dataclass
class MicroBatch:
    """One packed row for one forward pass.

    token_ids, position_ids (from 0 in each document), temperatures and all columns are [1, T]; `lengths` are those of
    the documents, `samples` their places in the batch. An empty row is one token that nothing counts, so that ranks go
    through it together.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    temperatures: torch.Tensor
    columns: TokenColumns
    lengths: tuple[int, ...]
    samples: tuple[int, ...] = ()

    @property
    def real_tokens(self) -> int:
        """Tokens of samples."""
        return sum(self.lengths)


def micro_batches_of(
    samples: Sequence[Sample],
    *,
    max_tokens: int,
    seq_len: int,
    device: str = "cpu",
    rank: int = 0,
    ranks: int = 1,
    quadratic: float = 0.0,
) -> list[MicroBatch]:
    """Return the rows of rank `rank`, of at most `max_tokens` tokens each (one sample always fits).

    Samples longer than `seq_len` are cut at the end. Every rank computes the same division and takes its own share.
    """
    lengths = [min(len(sample.token_ids), seq_len) for sample in samples]
    shares = spread(pack(lengths, max_tokens), lengths, ranks, quadratic=quadratic)
    return [_joined(row, samples, lengths, device) for row in shares[rank]]


def _joined(row: Row, samples: Sequence[Sample], lengths: Sequence[int], device: str) -> MicroBatch:
    chosen = [i for i in row if lengths[i]]
    kept = [(samples[i], lengths[i]) for i in chosen]

    def column(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        values = [value for sample, length in kept for value in getattr(sample, name)[:length]]
        return torch.tensor([values or [0]], dtype=dtype, device=device)

    counts = torch.tensor([length for _, length in kept] or [1], device=device)
    ends = counts.cumsum(0)
    documents = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)[None]
    positions = torch.arange(int(ends[-1]), device=device)[None] - (ends - counts)[documents]
    temperatures = torch.tensor([sample.temperature for sample, _ in kept] or [1.0], device=device)
    return MicroBatch(
        token_ids=column("token_ids", torch.long),
        position_ids=positions,
        temperatures=temperatures[documents],
        columns=TokenColumns(
            inference_logprobs=column("logprobs"),
            advantages=column("advantages"),
            rl_weights=column("rl_weights"),
            ce_weights=column("ce_weights"),
            ref_kl_weights=column("ref_kl_weights"),
            ref_logprobs=column("ref_logprobs"),
            documents=documents,
        ),
        lengths=tuple(length for _, length in kept),
        samples=tuple(chosen),
    )


def token_totals(samples: Sequence[Sample], seq_len: int) -> TokenTotals:
    """Return how many tokens of a batch count in each component of the loss, once samples are cut at `seq_len`."""

    def count(column: str) -> int:
        return sum(weight != 0 for sample in samples for weight in getattr(sample, column)[:seq_len])

    return TokenTotals(rl=count("rl_weights"), ce=count("ce_weights"), ref_kl=count("ref_kl_weights"))
