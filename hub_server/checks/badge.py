"""Draws a badge as a small SVG that needs no font but the reader's own."""

from __future__ import annotations

from xml.sax.saxutils import escape

from hub_server.checks.answers import Badge

_COLOURS = {"good": "#2e7d32", "bad": "#b3261e", "quiet": "#5f6368"}
_LABEL_COLOUR = "#3c4043"
_LETTER, _PADDING, _HEIGHT = 6.6, 8, 20


def draw_badge(label: str, badge: Badge) -> str:
    """Return the SVG of a label and a badge beside it."""
    left, right = _width(label), _width(badge.text)
    title = f"{escape(label)}: {escape(badge.text)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f'aria-label="{title}"><title>{title}</title>'
        f'<clipPath id="r"><rect width="{left + right}" height="{_HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{_HEIGHT}" fill="{_LABEL_COLOUR}"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{_COLOURS[badge.tone]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2:g}" y="14">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(badge.text)}</text></g></svg>\n'
    )


def _width(text: str) -> int:
    return round(len(text) * _LETTER) + 2 * _PADDING
