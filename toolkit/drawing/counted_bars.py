"""Draw counts as bars with names, and as cells of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from numpy.typing import NDArray

from toolkit.drawing import axis, row_names
from toolkit.drawing.bar_heights import readable_top
from toolkit.drawing.drawable import COLUMN
from toolkit.drawing.fonts import font_families
from toolkit.drawing.style import Theme
from toolkit.drawing.wording import fitting_numbers, percent, short_number

_HIGH: Final = 0.15  # inches of height of a number
# cells in this colour of the theme, or a stronger one, have light numbers
_MANY: Final = 5


def draw_rows(
    ax: Axes,
    names: Sequence[str],
    counts: Sequence[int],
    theme: Theme,
    signs: Sequence[int],
) -> None:
    """Draw one horizontal bar per row, the first at the top, with the count and share at the end."""
    total = max(sum(counts), 1)
    most = max(counts, default=1)
    for number, (count, sign) in enumerate(zip(counts, signs, strict=True)):
        ax.barh(number, count, height=0.7, **theme.bar(sign))
        ax.annotate(
            f"{count:,}  ({percent(count / total)})", xy=(count, number), xytext=(4, 0),
            textcoords="offset points", va="center", color=theme.ink, fontsize=9,
        )  # fmt: skip

    row_names.name_rows(ax, range(len(names)), names)
    # a single bar does not fill the Axes
    axis.limit(ax.yaxis, max(len(names), 3) - 0.4, -0.6)
    axis.limit(ax.xaxis, 0, most * 1.35)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.grid(visible=False)


def draw_cells(
    ax: Axes,
    counts: NDArray[np.int64],
    theme: Theme,
    *,
    edges: NDArray[np.float64] | None = None,
) -> float:
    """Draw a matrix of counts, the first row at the top, and return the inches used above the Axes."""
    rows, columns = counts.shape
    if edges is None:
        edges = np.arange(columns + 1) - 0.5
    # Each colour stands for a range of counts. If there are fewer ranges than colours, the colours are spread
    # over the whole scale: with two ranges, the weakest and the strongest colour.
    bounds = _bounds(counts, len(theme.heat))
    levels = np.searchsorted(bounds, counts, side="left")
    heat_of_level = np.linspace(0, len(theme.heat) - 1, len(bounds)).round().astype(int)
    colours = [theme.heat[position] for position in heat_of_level]
    first, last = axis.limit(ax.xaxis, edges[0], edges[-1])
    wide = axis.inches(ax) * float((edges[-1] - edges[0]) / (last - first))
    narrowest = wide * float((edges[1:] - edges[:-1]).min() / (edges[-1] - edges[0]))
    ax.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, np.ma.masked_equal(counts, 0), cmap=ListedColormap(colours),
        norm=BoundaryNorm([0.5, *(bound + 0.5 for bound in bounds)], len(colours)), shading="flat",
        snap=False, edgecolors=theme.paper, linewidth=min(1.0, 8 * narrowest),
    )  # fmt: skip
    axis.limit(ax.yaxis, rows - 0.5, -0.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    # numbers are written into the cells if all of them fit; otherwise a key explains the colours
    space = int(wide / columns / (COLUMN * 0.9)) - 1
    written = fitting_numbers(counts.ravel().tolist(), space)
    if max(map(len, written), default=0) > space or axis.inches_high(ax) / rows < _HIGH:
        return _key(ax, bounds, colours, theme)

    middle = (edges[:-1] + edges[1:]) / 2
    for row, column in np.argwhere(counts > 0):
        many = heat_of_level[levels[row, column]] >= _MANY
        ax.text(
            middle[column], row, written[row * columns + column], ha="center", va="center",
            color=theme.on_many if many else theme.on_few, fontsize=8,
        )  # fmt: skip

    return 0.0


def _bounds(counts: NDArray[np.int64], levels: int) -> list[int]:
    """Return the highest count of each colour.

    Steps are equal on the scale of the square root of the count, so that small counts differ as well. If
    one burst is far above all others, the last colour is only for it. For example, counts up to 100 with 4
    colours have the bounds 6, 25, 56, 100.
    """
    most = int(counts.max(initial=1))
    top = min(most, round(readable_top(counts.ravel())))
    steps = levels - 1 if top < most else levels
    bounds = {max(1, round(top * (step / steps) ** 2)) for step in range(1, steps + 1)}

    return sorted(bounds | {most})


def _key(ax: Axes, bounds: list[int], colours: list[str], theme: Theme) -> float:
    """Draw a key of colours and counts above the right end of the Axes; return the inches used there."""
    most = max(2, min(5, int(axis.inches(ax) / 0.7)))
    named = sorted(
        {
            round(position)
            for position in np.linspace(0, len(bounds) - 1, min(len(bounds), most))
        }
    )
    patches = [
        Patch(facecolor=colours[position], edgecolor=theme.grid, linewidth=0.6)
        for position in named
    ]
    lowest = [1, *(bound + 1 for bound in bounds)]
    names = [_span_of_counts(lowest[position], bounds[position]) for position in named]
    ax.legend(
        patches, names, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(names), frameon=False,
        prop={"family": font_families(), "size": 8}, labelcolor=theme.muted, handlelength=1.0,
        handleheight=0.8, handletextpad=0.3, labelspacing=0.3, columnspacing=0.8, borderpad=0.0,
        borderaxespad=0.4, markerscale=1.0, shadow=False, fancybox=False,
    )  # fmt: skip

    return 0.2


def _span_of_counts(low: int, high: int) -> str:
    first, last = short_number(low), short_number(high)
    if first == last:
        return first

    return f"{first}\N{EN DASH}{last}"
