"""A curve drawn with braille dots, two by four in a character. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_AXIS = 9


def draw_curve(
    points: Sequence[tuple[float, float]], *, width: int, height: int, floor: float | None = None
) -> list[str]:
    """Return the lines of a chart of (step, value) points with both axes; empty where it has no room or no point.

    Args:
        floor: the least value of the vertical axis, if it should reach that far down.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    columns, rows = width - _AXIS - 1, height - 2
    if not finite or columns < 8 or rows < 2:
        return []
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    low = low if floor is None else min(low, floor)
    if high - low < 1e-12:
        low, high = low - max(abs(low), 1.0) * 0.05, high + max(abs(high), 1.0) * 0.05
    first, last = finite[0][0], finite[-1][0]
    cells = [[0] * columns for _ in range(rows)]
    before: tuple[int, int] | None = None
    for x, y in finite:
        place = round((x - first) / ((last - first) or 1.0) * (2 * columns - 1))
        level = round((high - y) / (high - low) * (4 * rows - 1))
        for dot_x, dot_y in _line(before or (place, level), (place, level)):
            cells[dot_y // 4][dot_x // 2] |= _DOTS[dot_y % 4][dot_x % 2]
        before = (place, level)
    middle = rows // 2
    labels = {0: _figure(high), middle: _figure(high - (high - low) * middle / (rows - 1)), rows - 1: _figure(low)}
    lines = []
    for row, line in enumerate(cells):
        drawn = "".join(chr(0x2800 + cell) if cell else " " for cell in line)
        lines.append(f"{labels.get(row, ''):>{_AXIS}}┤{drawn}")
    ends = f"{first:g}", f"{last:g}"
    lines.append(" " * _AXIS + "└" + "─" * columns)
    lines.append(" " * (_AXIS + 1) + ends[0] + ends[1].rjust(columns - len(ends[0])))
    return lines


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots between two, both of them too."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * part / steps), round(start[1] + (end[1] - start[1]) * part / steps))
        for part in range(steps + 1)
    ]


def _figure(value: float) -> str:
    if value == 0 or 0.001 <= abs(value) < 100_000:
        return f"{value:.4g}"
    return f"{value:.1e}"
