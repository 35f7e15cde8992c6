"""The lengths of the vectors of an index."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from toolkit.analysis.norms import NormBins, norm_bins
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import percent
from toolkit.plots.axis import count_axis, heading, label_axis, name_rows, number_axis
from toolkit.plots.plot_text import say
from toolkit.plots.style import ThemeName, documented, drawing, theme_named


@documented
def plot_vector_norms(
    vectors: AnyFrame, *, bins: int = 40, ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """Draw how long the vectors are (Euclidean length).

    Where all have length 1, cosine, dot product and Euclidean distance order hits alike; where they have
    not, a dot product prefers long ones. A vector of length 0 has no direction, and no cosine query finds it.

    Parameters
    ----------
    vectors : frame
        With the column `vector`.
    bins : int
        How many bars, 1 to 1,000.
    {axes}
        With a sentence instead of bars where there is no usable vector.

    Raises
    ------
    InputError
        When the column is missing or `bins` is out of bounds.

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
    colours = theme_named(theme)
    found = norm_bins(vectors, bins=bins)
    with drawing(ax, colours) as axes:
        heading(axes, "Lengths of vectors", colours)
        if not found.total:
            return say(axes, f"No usable vectors{_aside(found)}", colours)
        left, widths = found.edges[:-1], found.edges[1:] - found.edges[:-1]
        if len(found.counts) == 1:
            # all of one length: a thin bar there, in the middle of a bin that is a whole unit wide
            length = float(left[0] + widths[0] / 2)
            left, widths = left + 0.49 * widths, 0.02 * widths
            heading(axes, f"Lengths of vectors: all {found.total:,} of length {length:.4g}", colours)
        axes.bar(left, found.counts, width=widths * 0.94, align="edge", **colours.bar(0))
        number_axis(axes, axes.xaxis)
        axes.set_xlim(found.edges[0], found.edges[-1])
        count_axis(axes, "vectors", colours)
        label_axis(axes.xaxis, f"length of the vector{_aside(found)}", colours)
        return axes


def _aside(found: NormBins) -> str:
    counts = ((found.zero, "of length 0"), (found.left_out, "without a usable vector left out"))
    parts = [f"{number:,} {what}" for number, what in counts if number]
    return f"\n({', '.join(parts)})" if parts else ""


def draw_recall(by: pd.DataFrame, title: str, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw a point and its interval for each row of `by` (`name`, `queries`, `share`, `low`, `high`)."""
    colours = theme_named(theme)
    known = by.dropna(subset="share")
    with drawing(ax, colours) as axes:
        heading(axes, title, colours)
        if known.empty:
            return say(axes, "No query has a neighbour", colours)
        rows = [-float(number) for number in range(len(known))]
        axes.errorbar(
            known["share"], rows, xerr=[known["share"] - known["low"], known["high"] - known["share"]],
            fmt="o", color=colours.series[0], ecolor=colours.series[0], capsize=4, linewidth=1.6,
        )  # fmt: skip
        low = min(0.9, float(known["low"].min()))
        axes.set_xlim(low - 0.03 * (1 - low), 1 + 0.03 * (1 - low))
        axes.set_ylim(rows[-1] - 0.6, 0.6)
        notes = [f"({number:,} asked)" for number in known["queries"]]
        prefix = name_rows(axes, rows, known["name"].tolist(), notes=notes)
        heading(axes, title, colours, prefix=prefix)
        number_axis(axes, axes.xaxis)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        label_axis(axes.xaxis, "neighbours returned, with the 95 % interval over queries", colours)
        return axes
