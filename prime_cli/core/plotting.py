"""Pictures by matplotlib and drawings in characters by plotext: what all plots of this tool have in common.

Both libraries are in the extra `lab`, and are imported only when something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.files import write_bytes_atomically

COLOURS = ("#08519c", "#d94801", "#238b45", "#6a51a3", "#b8860b", "#c51b7d", "#525252", "#17a2b8")
TERMINAL_COLOURS = ("blue", "orange", "green", "magenta", "red", "cyan", "gray", "white")
_FORMATS = (".png", ".svg")


def checked_picture(path: Path) -> Path:
    """Return the path of a picture to write; called before anything is computed for it.

    Raises:
        BadInput: the suffix is neither .png nor .svg.
    """
    if path.suffix.lower() not in _FORMATS:
        raise BadInput(f"{path} is no name of a picture", hint="use a name that ends in .png or .svg")
    return path


def colour_of(number: int) -> str:
    """Return the colour of the run with this number in pictures."""
    return COLOURS[number % len(COLOURS)]


@contextmanager
def picture(path: Path, *, rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.2, 4)) -> Iterator[Any]:
    """Yield axes to draw on, a list of them if there are several; the picture is written when the block ends.

    It appears whole or not at all, and the same data give the same bytes.

    Raises:
        BadInput: the suffix is neither .png nor .svg.
        PrimeError: matplotlib is not installed, or the picture cannot be written.
    """
    checked_picture(path)
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise _missing("matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(
        {"svg.hashsalt": "prime", "axes.grid": True, "grid.alpha": 0.25, "font.size": 9, "axes.axisbelow": True}
    ):
        figure, grid = pyplot.subplots(rows, columns, figsize=size, dpi=120, squeeze=False, layout="constrained")
        axes = list(grid.flat)
        try:
            yield axes if rows * columns > 1 else axes[0]
            for one in axes:
                one.spines[["top", "right"]].set_visible(False)
            kind, data = path.suffix.lower()[1:], io.BytesIO()
            figure.savefig(data, format=kind, metadata={"Date": None} if kind == "svg" else None)
            write_bytes_atomically(path, data.getvalue())
        except OSError as error:
            raise PrimeError(f"{path} cannot be written: {error.strerror}") from None
        finally:
            pyplot.close(figure)


def drawn_in_characters(draw: Callable[[Any], None], *, width: int, height: int, colour: bool) -> str:
    """Return what `draw` draws on plotext.

    Raises:
        PrimeError: plotext is not installed.
    """
    try:
        import plotext
    except ModuleNotFoundError:
        raise _missing("plotext") from None
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, height)
    draw(plotext)
    text = plotext.build()
    return str(text if colour else plotext.uncolorize(text)).rstrip()


def _missing(library: str) -> PrimeError:
    return PrimeError(f"plots need {library}", hint="install it with `pip install 'prime-lab[lab]'`")
