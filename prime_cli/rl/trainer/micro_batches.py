"""Cuts a batch into micro batches: rows in which whole samples stand one after the other, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prime_cli.rl.trainer.attention import Document
from prime_cli.rl.trainer.families import Family, families_of
from prime_cli.rl.trainer.loss import TokenColumns, TokenTotals
from prime_cli.rl.trainer.packing import pack, spread
from prime_cli.rl.transport import Sample


@dataclass
class MicroBatch:
    """One packed row for one forward pass.

    token_ids, position_ids (from 0 in each document), previous (where in the row the token before it stands, which
    predicts it), temperatures and all columns are [1, T]; `samples` are the places of the documents in the batch. An
    empty row is one token that nothing counts, so that ranks go through it together.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    previous: torch.Tensor
    temperatures: torch.Tensor
    columns: TokenColumns
    documents: tuple[Document, ...]
    samples: tuple[int, ...]

    @property
    def real_tokens(self) -> int:
        """Tokens of samples, shared ones counted for each of them."""
        return sum(document.length for document in self.documents)


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

    Args:
        quadratic: cost of attention: a sample of n tokens costs n + quadratic * n^2.
    """
    lengths = [min(len(sample.token_ids), seq_len) for sample in samples]
    families = families_of(samples, lengths, max_tokens)
    costs = [f.tokens + quadratic * sum(lengths[member] ** 2 for member in f.members) for f in families]
    shares = spread(pack([family.tokens for family in families], max_tokens), costs, ranks)
    return [_joined([families[i] for i in row], samples, lengths, device) for row in shares[rank]]


@dataclass(frozen=True)
class _Piece:
    """The tokens `start` to `end` of a sample; `at` is where in the row they stand, `after` what stands before them."""

    sample: Sample
    start: int
    end: int
    at: int
    after: int


def _pieces_of(
    families: Sequence[Family], samples: Sequence[Sample], lengths: Sequence[int]
) -> tuple[list[_Piece], tuple[Document, ...]]:
    """Return what stands in a row, one piece after the other, and the documents that are made of them."""
    pieces: list[_Piece] = []
    documents: list[Document] = []
    at = 0
    for family in families:
        begins = at
        if family.shared:
            pieces.append(_Piece(samples[family.members[0]], 0, family.shared, at, at - 1))
            at += family.shared
        for member in family.members:
            if lengths[member]:
                after = begins + family.shared - 1
                pieces.append(_Piece(samples[member], family.shared, lengths[member], at, after))
                documents.append(Document(at, lengths[member], begins, family.shared))
                at += lengths[member] - family.shared
    return pieces, tuple(documents)


def _joined(families: Sequence[Family], samples: Sequence[Sample], lengths: Sequence[int], device: str) -> MicroBatch:
    pieces, documents = _pieces_of(families, samples, lengths)

    def column(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        values = [value for piece in pieces for value in getattr(piece.sample, name)[piece.start : piece.end]]
        return torch.tensor([values or [0]], dtype=dtype, device=device)

    def per_piece(values: Sequence[float], empty: float) -> torch.Tensor:
        return torch.tensor(values or [empty], device=device)

    counts = per_piece([piece.end - piece.start for piece in pieces], 1)
    numbers = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)[None]
    places = torch.arange(int(counts.sum()), device=device)[None]
    firsts = per_piece([piece.at for piece in pieces], 0)
    positions = places - firsts[numbers] + per_piece([piece.start for piece in pieces], 0)[numbers]
    is_first = places == firsts[numbers]
    return MicroBatch(
        token_ids=column("token_ids", torch.long),
        position_ids=positions,
        previous=torch.where(is_first, per_piece([piece.after for piece in pieces], 0)[numbers], places - 1).clamp(
            min=0
        ),
        temperatures=per_piece([piece.sample.temperature for piece in pieces], 1.0)[numbers],
        columns=TokenColumns(
            inference_logprobs=column("logprobs"),
            advantages=column("advantages"),
            rl_weights=column("rl_weights"),
            ce_weights=column("ce_weights"),
            ref_kl_weights=column("ref_kl_weights"),
            ref_logprobs=column("ref_logprobs"),
            documents=numbers,
        ),
        documents=documents,
        samples=tuple(member for family in families for member in family.members if lengths[member]),
    )


def token_totals(samples: Sequence[Sample], seq_len: int) -> TokenTotals:
    """Return how many tokens of a batch count in each component of the loss, once samples are cut at `seq_len`."""

    def count(column: str) -> int:
        return sum(weight != 0 for sample in samples for weight in getattr(sample, column)[:seq_len])

    return TokenTotals(rl=count("rl_weights"), ce=count("ce_weights"), ref_kl=count("ref_kl_weights"))
