"""The curve of one figure, as large as there is room."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from prime_cli.viewer.reading.curve import draw_curve
from prime_cli.viewer.widgets.styled import BOLD, DIM, GOOD, WRONG, lines

_FROM_ZERO = ("reward/mean", "/reward/mean", "errors", "off_policy/mean")


class CurveView(Static):
    """Draws one figure over the steps; red when an alarm is about it."""

    DEFAULT_CSS = """
    CurveView { width: 1fr; height: 1fr; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own name
        super().__init__(id=id)
        self._name_of_figure = ""
        self._points: Sequence[tuple[float, float]] = ()
        self._alarmed = False

    def show(self, name: str, points: Sequence[tuple[float, float]], *, alarmed: bool) -> None:
        """Draw the points of a figure."""
        self._name_of_figure, self._points, self._alarmed = name, points, alarmed
        self.update(self._drawn())

    def on_resize(self) -> None:
        """Draw at another size."""
        self.update(self._drawn())

    def _drawn(self) -> Content:
        if not self._points:
            return Content("")
        values = [value for _, value in self._points]
        colour = WRONG if self._alarmed else GOOD
        facts = f"   now {values[-1]:.4g}   least {min(values):.4g}   most {max(values):.4g}   {len(values)} steps"
        width = self.size.width - 1
        head = ((self._name_of_figure[:width], BOLD), (facts[: max(0, width - len(self._name_of_figure))], DIM))
        floor = 0.0 if self._name_of_figure.endswith(_FROM_ZERO) else None
        drawn = draw_curve(self._points, width=width, height=self.size.height - 1, floor=floor)
        return lines([head, *(((line, colour),) for line in drawn)])
