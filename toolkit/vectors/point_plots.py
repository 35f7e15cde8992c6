"""Plot vectors: their lengths, or a map of them as points, coloured by a number or by a few values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle

from toolkit.drawing.axis import (
    aside,
    count_axis,
    heading,
    label_axis,
    legend,
    limit,
    number_axis,
    show_sentence,
    with_finding,
)
from toolkit.drawing.drawable import drawable_names
from toolkit.drawing.style import Theme, ThemeName, documented, drawing, prepare
from toolkit.failures.sources import AnyFrame
from toolkit.vectors.point_values import CATEGORIES, as_categories, as_numbers
from toolkit.vectors.scores import norm_bins

_MARKERS: Final = ("o", "s", "^", "D", "v", "<", ">", "p", "o")
_PALE: Final = 2  # the first ones are too near the background for points

_Floats = npt.NDArray[np.float64]


@documented
def plot_vector_norms(
    vectors: AnyFrame,
    *,
    bins: int = 40,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the Euclidean lengths of vectors.

    If all have length 1, cosine, dot product and Euclidean distance order hits alike; otherwise, a dot
    product prefers long vectors. A vector of length 0 has no direction: the cosine score is the same for
    every query.

    Parameters
    ----------
    vectors : frame
        With the column `vector`.
    bins : int
        Number of bars, 1 to 1,000.
    {axes}
        If no vector is usable, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from toolkit.tables import schemas
    >>> from toolkit.tables.frames import frame_from_rows
    >>> rows = [{"namespace": "", "id": str(v), "vector": v} for v in ([3, 4], [0, 1])]
    >>> ax = plot_vector_norms(frame_from_rows(rows, schemas.vectors(2)), bins=2, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 1]
    """
    norms = norm_bins(vectors, bins=bins)
    notes = aside(
        (norms.zero, "of length 0"),
        (norms.left_out, "without a usable vector left out"),
    )
    with drawing(ax, theme) as (axes, colours):
        title = "Lengths of vectors"
        if not norms.total:
            return show_sentence(
                axes, f"No usable vectors\n{notes}".rstrip(), colours, title
            )

        finding = f"from {norms.edges[0]:.4g} to {norms.edges[-1]:.4g}"
        left, widths = norms.edges[:-1], norms.edges[1:] - norms.edges[:-1]
        if len(norms.counts) == 1:
            # all have one length: a thin bar in the middle of a bin that is a whole unit wide
            length = float(left[0] + widths[0] / 2)
            left, widths = left + 0.49 * widths, 0.02 * widths
            finding = f"all {norms.total:,} of length {length:.4g}"

        heading(axes, with_finding(title, finding), colours)
        axes.bar(
            left, norms.counts, width=widths * 0.94, align="edge", **colours.bar(0)
        )
        number_axis(axes, axes.xaxis)
        limit(axes.xaxis, norms.edges[0], norms.edges[-1])
        count_axis(axes, "vectors", colours, norms.counts.max())
        label_axis(axes.xaxis, f"length of the vector\n{notes}", colours)
        return axes


def draw_points(
    x: _Floats,
    y: _Floats,
    values: pd.Series[Any] | None,
    *,
    title: str,
    note: str,
    ax: Axes | None,
    theme: ThemeName,
) -> Axes:
    """Draw one point per pair of coordinates, coloured by a value; the note is below."""
    with drawing(ax, theme) as (axes, colours):
        heading(axes, title, colours)
        if not len(x):
            return show_sentence(axes, "No usable vectors", colours)
        axes.grid(visible=False)
        size = float(np.clip(20_000 / len(x), 4, 36))

        if values is None:
            dot = MarkerStyle("o", "full")
            axes.scatter(
                x,
                y,
                s=size,
                marker=dot,
                color=colours.series[0],
                linewidths=0,
                alpha=0.7,
            )
        elif (numbers := as_numbers(values)) is not None:
            _draw_scale(axes, x, y, numbers, size, colours)
        else:
            above = _draw_categories(axes, x, y, values, size, colours)
            heading(axes, title, colours, above=above)

        for axis in (axes.xaxis, axes.yaxis):
            number_axis(axes, axis)
            axis.set_tick_params(labelbottom=False, labelleft=False, length=0)

        for axis, places in ((axes.xaxis, x), (axes.yaxis, y)):
            space = 0.05 * float(np.ptp(places)) or 0.5
            limit(axis, places.min() - space, places.max() + space)

        label_axis(axes.xaxis, note, colours)
        return axes


def _draw_categories(
    axes: Axes,
    x: _Floats,
    y: _Floats,
    values: pd.Series[Any],
    size: float,
    theme: Theme,
) -> float:
    """Draw rare values on top, name frequent ones first, and return the inches used above the Axes."""
    names, codes = as_categories(values)
    handles = []
    for number in range(len(names)):
        inside, marker, colour = codes == number, _MARKERS[number], theme.series[number]
        axes.scatter(
            x[inside], y[inside], s=size, marker=MarkerStyle(marker, "full"), color=colour, linewidths=0,
            alpha=0.85, zorder=1.9 if number == CATEGORIES else 2 + number / 100,
        )  # fmt: skip
        handles.append(
            Line2D([], [], color=colour, marker=marker, markersize=6, linestyle="")
        )

    counts = np.bincount(codes, minlength=len(names))
    short = drawable_names(names, longest=24)
    labels = [f"{name} ({count:,})" for name, count in zip(short, counts, strict=True)]

    return legend(axes, handles, labels, theme)[1]


def _draw_scale(
    axes: Axes, x: _Floats, y: _Floats, numbers: _Floats, size: float, theme: Theme
) -> None:
    """Draw points coloured by numbers, with a colour bar at the right; missing numbers are grey."""
    known, dot = ~np.isnan(numbers), MarkerStyle("o", "full")
    axes.scatter(
        x[~known], y[~known], s=size, marker=dot, color=theme.grid, linewidths=0
    )
    shades = LinearSegmentedColormap.from_list("vectors", theme.heat[_PALE:])
    edges = np.linspace(np.nanmin(numbers), np.nanmax(numbers), 257)
    limits = Normalize(float(edges[0]), float(edges[-1]))
    axes.scatter(
        x[known],
        y[known],
        s=size,
        marker=dot,
        color=shades(limits(numbers[known])),
        linewidths=0,
        alpha=0.85,
    )
    bar = prepare(axes.inset_axes((1.02, 0.0, 0.03, 1.0)), theme)
    middles = (edges[:-1] + edges[1:])[:, None] / 2
    bar.pcolormesh(
        [0, 1],
        edges,
        middles,
        cmap=shades,
        norm=limits,
        shading="flat",
        antialiased=False,
        snap=True,
    )
    bar.spines[:].set_visible(False)
    bar.grid(visible=False)
    bar.set_xlim(0, 1)
    bar.set_ylim(edges[0], edges[-1])
    number_axis(axes, bar.yaxis)
    bar.tick_params(
        left=False,
        labelleft=False,
        bottom=False,
        labelbottom=False,
        right=True,
        labelright=True,
    )
