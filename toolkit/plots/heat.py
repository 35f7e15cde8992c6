"""Cells coloured by their counts, with the counts written in them where they fit."""

from __future__ import annotations

from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm, to_hex
from numpy.typing import NDArray

from toolkit.analysis.wording import fitting_numbers
from toolkit.plots.axis import CHARACTER, inches, inches_high
from toolkit.plots.style import Theme

_COLOURS: Final = "cividis"  # the same order of lightness for every eye, and in grey
_ROOT: Final = 0.5  # counts are skewed: on a straight scale one large cell leaves all others dark
_HIGH: Final = 0.15  # inches a number needs upwards
_BRIGHT: Final = 0.179  # luminance above which black on it reads better than white


def draw_cells(
    ax: Axes, counts: NDArray[np.int64], theme: Theme, *, edges: NDArray[np.float64] | None = None
) -> None:
    """Draw a matrix of counts, the first row at the top; a cell without a count has no colour.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Prepared.
    counts : numpy.ndarray
        Shape (rows, columns); cell (i, j) lies around y = i and, without `edges`, around x = j.
    theme : Theme
    edges : numpy.ndarray, optional
        Horizontal edges of the columns, shape (columns + 1,).

    Counts are written into the cells, the second sign beside colour, where all of them fit.
    """
    rows, columns = counts.shape
    edges = np.arange(columns + 1) - 0.5 if edges is None else edges
    most = max(int(counts.max(initial=0)), 1)
    # the darkest colours would not be told from a dark background
    low = 0 if _luminance(theme.paper) > _BRIGHT else -0.1 * most
    scale = PowerNorm(_ROOT, low, most)
    palette = mpl.colormaps[_COLOURS]
    narrowest = inches(ax) * float((edges[1:] - edges[:-1]).min() / (edges[-1] - edges[0]))
    ax.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, np.ma.masked_equal(counts, 0), cmap=palette, norm=scale,
        shading="flat", snap=False, edgecolors=theme.paper, linewidth=min(1.0, 8 * narrowest),
    )  # fmt: skip
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    room = int(inches(ax) / columns / (CHARACTER * 0.9)) - 1
    written = fitting_numbers(counts.ravel().tolist(), room)
    if max(map(len, written), default=0) > room or inches_high(ax) / rows < _HIGH:
        return
    middle = (edges[:-1] + edges[1:]) / 2
    for row, column in np.argwhere(counts > 0):
        count = int(counts[row, column])
        ink = "#000000" if _luminance(to_hex(palette(scale(count)))) > _BRIGHT else "#ffffff"
        ax.text(
            middle[column],
            row,
            written[row * columns + column],
            ha="center",
            va="center",
            color=ink,
            fontsize=8,
        )


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]  # noqa: PLR2004 - the definition's own
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
