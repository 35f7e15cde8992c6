"""The lengths of the vectors of an index."""

from __future__ import annotations

from matplotlib.axes import Axes

from toolkit.analysis.norms import NormBins, norm_bins
from toolkit.analysis.sources import AnyFrame
from toolkit.plots.axis import count_axis, heading, label_axis, number_axis
from toolkit.plots.plot_text import say
from toolkit.plots.style import HATCHES, ThemeName, drawing, theme_named


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
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
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
        axes.bar(
            left, found.counts, width=widths * 0.94, align="edge",
            color=colours.series[0], hatch=HATCHES[0], edgecolor=colours.paper, linewidth=0,
        )  # fmt: skip
        number_axis(axes, axes.xaxis)
        axes.set_xlim(found.edges[0], found.edges[-1])
        count_axis(axes, "vectors", colours)
        label_axis(axes.xaxis, f"length of the vector{_aside(found)}", colours)
        return axes


def _aside(found: NormBins) -> str:
    parts = [
        f"{number:,} {what}"
        for number, what in (
            (found.zero, "of length 0"),
            (found.left_out, "without a usable vector left out"),
        )
        if number
    ]
    return f"\n({', '.join(parts)})" if parts else ""
