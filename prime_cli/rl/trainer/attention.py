"""Attention within the documents of a packed row: no token sees another document.

A block-diagonal mask would cost the square of the row; here each document costs the square of its own length. Documents
of like length are attended to together, padded at the end, which under a causal mask no real token sees.

The function is registered with transformers under its own name, so that the models stay as they are.

Shapes: T tokens of the row, H heads, D of a head, N documents of a group, L tokens of its longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

DOCUMENT_ATTENTION = "prime_documents"
"""The name to give `attn_implementation`."""

_WASTE = 0.8  # a document joins a group when it is at least this long, measured by the group's longest


@dataclass(frozen=True)
class _Group:
    """Where the tokens of some documents lie in the row: `gather` [N * L], padded; `back` their places among these."""

    gather: torch.Tensor
    back: torch.Tensor
    documents: int
    longest: int


class Documents:
    """The documents of a row, longest first, prepared once and used by every layer."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.groups: list[_Group] = []
        start = 0
        members: list[int] = []
        for length in lengths:
            if members and not members[0] * _WASTE <= length <= members[0]:
                start += self._add(start, members, device)
                members = []
            members.append(length)
        if members:
            self._add(start, members, device)

    def _add(self, start: int, lengths: list[int], device: torch.device | str) -> int:
        counts = torch.tensor(lengths, device=device)[:, None]
        columns = torch.arange(lengths[0], device=device)[None]
        firsts = start + counts.cumsum(0) - counts
        gather = firsts + torch.minimum(columns, counts - 1)
        back = (columns < counts).flatten().nonzero()[:, 0]
        self.groups.append(_Group(gather.flatten(), back, len(lengths), lengths[0]))
        return sum(lengths)


def document_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    documents: Documents | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return [1, T, H, D] for query [1, H, T, D] and key and value with as many heads, or fewer (grouped queries).

    Without `documents` every row of the batch is one document.

    Raises:
        ValueError: the model wants what this function does not do.
    """
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise ValueError(f"attention with `{name}` is not supported")

    def attend(q_NHLD: torch.Tensor, k_NHLD: torch.Tensor, v_NHLD: torch.Tensor) -> torch.Tensor:
        length = q_NHLD.shape[2]
        window = None
        if sliding_window is not None and sliding_window < length:
            distance = torch.arange(length, device=query.device)[:, None] - torch.arange(length, device=query.device)
            window = (distance >= 0) & (distance < sliding_window)
        return torch.nn.functional.scaled_dot_product_attention(
            q_NHLD, k_NHLD, v_NHLD, attn_mask=window, is_causal=window is None, dropout_p=dropout, scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )  # fmt: skip

    if documents is None:
        return attend(query, key, value).transpose(1, 2), None
    q_THD, k_THD, v_THD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    parts = []
    for group in documents.groups:

        def padded(tensor_THD: torch.Tensor, group: _Group = group) -> torch.Tensor:
            rows = tensor_THD.index_select(0, group.gather)
            return rows.view(group.documents, group.longest, *rows.shape[1:]).transpose(1, 2)

        out_NHLD = attend(padded(q_THD), padded(k_THD), padded(v_THD))
        parts.append(out_NHLD.transpose(1, 2).flatten(0, 1).index_select(0, group.back))
    return torch.cat(parts)[None], None


def register_document_attention() -> None:
    """Make `DOCUMENT_ATTENTION` known to transformers; it then builds no mask for it."""
    from transformers import AttentionInterface

    AttentionInterface.register(DOCUMENT_ATTENTION, document_attention)
