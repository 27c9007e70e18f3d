"""A key-value cache with one row per running request, so that requests can join and leave at every step.

Shapes: S slots, H key-value heads, C context length, D head dimension, B rows in this forward, Q new tokens per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class Write:
    """Where the next forward writes and how far it reads; shared by all layers.

    slots_B: row of each sequence in the buffers. positions_BQ: column of each new token. length: columns to attend to.
    """

    slots_B: torch.Tensor
    positions_BQ: torch.Tensor
    length: int
    contiguous: bool  # slots_B is 0..B-1: reading is then a view and not a copy


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values, [S, H, C, D] each, allocated at the first write."""

    is_sliding = False
    is_compileable = False

    def __init__(self, plan: list[Write], num_slots: int, context_length: int) -> None:
        super().__init__()
        self._plan = plan
        self._num_slots = num_slots
        self._context_length = context_length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers in the shape, type and device of the first states."""
        heads, dimension = key_states.shape[1], key_states.shape[3]
        shape = (self._num_slots, heads, self._context_length, dimension)
        self.keys = key_states.new_zeros(shape)
        self.values = value_states.new_zeros((*shape[:3], value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states [B, H, Q, D] where the plan says; return [B, H, length, D] to attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        write = self._plan[0]
        rows = write.slots_B[:, None]
        self.keys[rows, :, write.positions_BQ] = key_states.transpose(1, 2)
        self.values[rows, :, write.positions_BQ] = value_states.transpose(1, 2)
        if write.contiguous:
            count = len(write.slots_B)
            return self.keys[:count, :, : write.length], self.values[:count, :, : write.length]
        return self.keys[write.slots_B, :, : write.length], self.values[write.slots_B, :, : write.length]

    def copy_slot(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of one slot to another."""
        if self.is_initialized:
            self.keys[target, :, :length] = self.keys[source, :, :length]
            self.values[target, :, :length] = self.values[source, :, :length]

    def get_seq_length(self) -> int:
        """Return 0: positions are always given, so the model never asks how much was seen."""
        return 0

    def get_max_length(self) -> int:
        """Return the context length."""
        return self._context_length

    def get_max_cache_shape(self) -> int:
        """Return the context length."""
        return self._context_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (columns, offset) of the mask; the engine passes its own 4D mask, so this is only for form."""
        return self._plan[0].length, 0


class SlotCache(Cache):
    """The cache of all layers. Set `plan` before each forward."""

    def __init__(self, num_layers: int, num_slots: int, context_length: int) -> None:
        self._plan: list[Write] = [Write(torch.empty(0), torch.empty(0), 0, False)]
        super().__init__(layers=[SlotLayer(self._plan, num_slots, context_length) for _ in range(num_layers)])

    def plan(self, write: Write) -> None:
        """Say where the next forward writes and reads."""
        self._plan[0] = write

    def copy_slot(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of one slot to another, in every layer."""
        for layer in self.layers:
            layer.copy_slot(source, target, length)


def slots_that_fit(config: Any, *, context_length: int, bytes_per_value: int, budget_bytes: int) -> int:
    """Return how many slots a cache of at most `budget_bytes` has room for; at least 1.

    One slot holds keys and values of every layer and key-value head for `context_length` tokens.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    slot_bytes: int = 2 * config.num_hidden_layers * heads * head_dim * context_length * bytes_per_value
    return max(1, budget_bytes // slot_bytes)
