"""Which pieces share a row, and which rows go to which rank. Pure bookkeeping over lengths."""

from __future__ import annotations

from collections.abc import Sequence

Row = list[int]
"""Indices of the pieces that are packed one after the other."""


def pack(lengths: Sequence[int], capacity: int) -> list[Row]:
    """Return rows of at most `capacity` tokens, by first-fit-decreasing; a longer piece has a row of its own.

    First-fit-decreasing needs at most 11/9 of the fewest possible rows, and one more (Johnson 1973). Within a row the
    pieces are ordered by length, longest first.
    """
    rows: list[Row] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((r for r, free in enumerate(room) if free >= lengths[index]), None)
        if row is None:
            rows.append([])
            room.append(capacity)
            row = len(rows) - 1
        rows[row].append(index)
        room[row] -= lengths[index]
    return rows


def spread(rows: Sequence[Row], costs: Sequence[float], ranks: int) -> list[list[Row]]:
    """Return the rows of each rank: the same number for all, their costs as even as a greedy choice makes them.

    Ranks take each step of a forward pass together, so all need as many rows. When the rows are no multiple of the
    ranks, the costliest that hold several pieces are cut in two; what is then missing is filled up with empty rows.
    A rank's rows are ordered by cost, so that the ranks work on rows of like cost at the same time.

    Args:
        costs: of each piece, in any unit.
    """

    def cost(row: Row) -> float:
        return sum(costs[i] for i in row)

    parts = [list(row) for row in rows] or [[]]
    while len(parts) % ranks:
        divisible = [row for row in parts if len(row) > 1]
        if not divisible:
            parts.append([])
            continue
        heaviest = max(divisible, key=cost)
        parts.remove(heaviest)
        parts += [heaviest[::2], heaviest[1::2]]
    each = len(parts) // ranks
    shares: list[list[Row]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for row in sorted(parts, key=cost, reverse=True):
        lightest = min((r for r in range(ranks) if len(shares[r]) < each), key=lambda r: loads[r])
        shares[lightest].append(row)
        loads[lightest] += cost(row)
    return shares
