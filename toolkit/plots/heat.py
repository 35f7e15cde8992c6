"""Cells coloured by their counts, with the counts written in them where they fit."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from numpy.typing import NDArray

from toolkit.analysis.over_time import readable_top
from toolkit.analysis.wording import fitting_numbers, short_number
from toolkit.plots.axis import inches, inches_high
from toolkit.plots.style import FONT, Theme
from toolkit.plots.texts import COLUMN

_HIGH: Final = 0.15  # inches a number needs upwards
_MANY: Final = 5  # the colour of the theme's from which on texts are those for many


def draw_cells(
    ax: Axes, counts: NDArray[np.int64], theme: Theme, *, edges: NDArray[np.float64] | None = None
) -> float:
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

    Counts are written into the cells, the second sign beside colour, where all of them fit; where not, there
    is a key.

    Returns
    -------
    float
        Inches that the key to the colours takes above the Axes.
    """
    rows, columns = counts.shape
    edges = np.arange(columns + 1) - 0.5 if edges is None else edges
    bounds = _bounds(counts, len(theme.heat))
    levels = np.searchsorted(bounds, counts, side="left")
    shown = [
        theme.heat[place] for place in np.linspace(0, len(theme.heat) - 1, len(bounds)).round().astype(int)
    ]
    narrowest = inches(ax) * float((edges[1:] - edges[:-1]).min() / (edges[-1] - edges[0]))
    ax.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, np.ma.masked_equal(counts, 0), cmap=ListedColormap(shown),
        norm=BoundaryNorm([0.5, *(bound + 0.5 for bound in bounds)], len(shown)), shading="flat", snap=False,
        edgecolors=theme.paper, linewidth=min(1.0, 8 * narrowest),
    )  # fmt: skip
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    room = int(inches(ax) / columns / (COLUMN * 0.9)) - 1
    written = fitting_numbers(counts.ravel().tolist(), room)
    if max(map(len, written), default=0) > room or inches_high(ax) / rows < _HIGH:
        return _key(ax, bounds, shown, theme)
    middle = (edges[:-1] + edges[1:]) / 2
    for row, column in np.argwhere(counts > 0):
        many = theme.heat.index(shown[levels[row, column]]) >= _MANY
        ax.text(
            middle[column], row, written[row * columns + column], ha="center", va="center",
            color=theme.on_many if many else theme.on_few, fontsize=8,
        )  # fmt: skip
    return 0.0


def _bounds(counts: NDArray[np.int64], levels: int) -> list[int]:
    """The highest count of each colour, evenly by the root of the count: counts are skewed.

    Where a burst stands out from all others, it has the last colour for itself.
    """
    most = int(counts.max(initial=1))
    top = min(most, round(readable_top(counts.ravel())))
    steps = levels - (top < most)
    return sorted({max(1, round(top * (step / steps) ** 2)) for step in range(1, steps + 1)} | {most})


def _key(ax: Axes, bounds: list[int], shown: list[str], theme: Theme) -> float:
    """Which colours stand for how many failures, above the right end of the Axes."""
    most = max(2, min(5, int(inches(ax) / 0.7)))
    some = sorted({round(place) for place in np.linspace(0, len(bounds) - 1, min(len(bounds), most))})
    patches = [Patch(facecolor=shown[place], edgecolor=theme.grid, linewidth=0.6) for place in some]
    lowest = [1, *(bound + 1 for bound in bounds)]
    names = [_span(lowest[place], bounds[place]) for place in some]
    ax.legend(
        patches, names, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(names), frameon=False,
        prop={"family": FONT, "size": 8}, labelcolor=theme.muted, handlelength=1.0, handleheight=0.8,
        handletextpad=0.3, labelspacing=0.3, columnspacing=0.8, borderpad=0.0, borderaxespad=0.4,
        markerscale=1.0, shadow=False, fancybox=False,
    )  # fmt: skip
    return 0.2


def _span(low: int, high: int) -> str:
    first, last = short_number(low), short_number(high)
    return first if first == last else f"{first}\N{EN DASH}{last}"
