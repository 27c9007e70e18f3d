"""Samples that begin alike: the rollouts of a group share their prompt, which need not be computed for each of them.

In a packed row the shared beginning of a family stands once, the rest of each member behind it. Attention lets each
rest see the beginning and itself (`attention.py`), so nothing changes but the work: of a group of 16 whose prompt is
as long as the answers, almost half of it is saved. Only tokens without any weight are shared. Pure bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prime_cli.rl.transport import Sample


@dataclass(frozen=True)
class Family:
    """The samples with these indices, whose first `shared` tokens are the same; one without relatives shares none."""

    members: tuple[int, ...]
    shared: int
    tokens: int  # in a row: the shared ones once, and all others


def families_of(samples: Sequence[Sample], lengths: Sequence[int], capacity: int) -> list[Family]:
    """Return all samples in families, of at most `capacity` tokens each unless a single sample has more.

    Args:
        lengths: how much of each sample is taken.
    """
    relatives: dict[tuple[int, ...], list[int]] = {}
    families = []
    for index, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        shared = _unweighted_beginning(sample, length)
        if shared:
            relatives.setdefault(tuple(sample.token_ids[:shared]), []).append(index)
        else:
            families.append(Family((index,), 0, length))
    for beginning, indices in relatives.items():
        families += _fitting(indices, lengths, len(beginning), capacity)
    return families


def _fitting(indices: Sequence[int], lengths: Sequence[int], shared: int, capacity: int) -> list[Family]:
    parts: list[list[int]] = []
    room = 0
    for index in indices:
        rest = lengths[index] - shared
        if not parts or rest > room:
            parts.append([])
            room = capacity - shared
        parts[-1].append(index)
        room -= rest
    return [
        Family(tuple(part), shared, shared + sum(lengths[i] - shared for i in part))
        if len(part) > 1
        else Family((part[0],), 0, lengths[part[0]])
        for part in parts
    ]


def _unweighted_beginning(sample: Sample, length: int) -> int:
    """Return how many tokens stand before the first that counts; 0 where none counts."""
    columns = zip(sample.rl_weights[:length], sample.ce_weights[:length], sample.ref_kl_weights[:length], strict=True)
    return next((at for at, weights in enumerate(columns) if any(weights)), 0)
