"""Attention within the documents of a packed row: no token sees another document.

A block-diagonal mask would cost the square of the row; here each document costs the square of its own length. Documents
of like length are attended to together, padded at the end, which under a causal mask no real token sees. Documents may
share their first tokens, which then stand in the row once (see `families.py`).

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
class Document:
    """Where a document of `length` tokens stands in a row: its tokens from `start` on.

    But for its first `shared`, which stand from `shared_start` on and are the first of other documents too.
    """

    start: int
    length: int
    shared_start: int = 0
    shared: int = 0

    @property
    def places(self) -> list[int]:
        """Where in the row its tokens stand."""
        own = range(self.start, self.start + self.length - self.shared)
        return [*range(self.shared_start, self.shared_start + self.shared), *own]


@dataclass(frozen=True)
class _Group:
    """Documents that are attended to together: `gather` [N * L] says where in the row their tokens lie, padded."""

    gather: torch.Tensor
    documents: int
    longest: int


class Documents:
    """The documents of a row, prepared once and used by every layer.

    `back` [T] says for each token of the row where it lies among the padded tokens of all groups, one after the other;
    a shared token is taken from the first of its documents, all of which compute the same for it.
    """

    def __init__(self, documents: Sequence[Document], device: torch.device | str = "cpu") -> None:
        self.groups: list[_Group] = []
        places: list[torch.Tensor] = []
        members: list[Document] = []
        for document in sorted(documents, key=lambda document: -document.length):
            if members and document.length < members[0].length * _WASTE:
                places.append(self._add(members, device))
                members = []
            members.append(document)
        places.append(self._add(members, device))
        gathered, real = torch.cat([group.gather for group in self.groups]), torch.cat(places)
        nowhere = torch.full((int(gathered.max()) + 1,), len(gathered), device=device)
        self.back = nowhere.scatter_reduce(0, gathered[real], real.nonzero()[:, 0], "amin")

    def _add(self, documents: Sequence[Document], device: torch.device | str) -> torch.Tensor:
        """Prepare a group; return which of its places hold a token (and not padding)."""
        facts = [(d.start, d.length, d.shared_start, d.shared) for d in documents]
        starts, lengths, shared_starts, shared = torch.tensor(facts, device=device).T[:, :, None]
        longest = documents[0].length
        columns = torch.arange(longest, device=device)[None]
        inside = torch.minimum(columns, lengths - 1)
        gather = torch.where(inside < shared, shared_starts + inside, starts + inside - shared)
        self.groups.append(_Group(gather.flatten(), len(documents), longest))
        return (columns < lengths).flatten()


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
        parts.append(out_NHLD.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, documents.back)[None], None


def register_document_attention() -> None:
    """Make `DOCUMENT_ATTENTION` known to transformers; it then builds no mask for it."""
    from transformers import AttentionInterface

    AttentionInterface.register(DOCUMENT_ATTENTION, document_attention)
