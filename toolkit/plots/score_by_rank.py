"""Scores by rank: where the good hits end."""

from __future__ import annotations

from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.scores import score_curves
from toolkit.analysis.wording import counted
from toolkit.arguments import whole
from toolkit.plots.axis import heading, label_axis, number_axis, whole_axis
from toolkit.plots.lines import DASHES, MARKERS, name_lines
from toolkit.plots.style import ThemeName, drawing, theme_named
from toolkit.plots.texts import drawable, say

_FEW = 40  # ranks up to which every one gets a marker


def plot_score_by_rank(
    hits: IntoFrame,
    *,
    by: str = "query",
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the score of each hit against its rank, a line a query, named where it ends.

    A steep fall and then a flat tail means that few hits are near and the rest is noise. Not for comparing
    scores of different indexes or query modes.

    Parameters
    ----------
    hits : frame
        With the columns `rank`, `score` and `by`.
    by : str
        Column of single values to tell apart.
    top : int
        How many lines, 1 to 9; the label says how many were left out.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of lines where there is no finite score.

    Raises
    ------
    InputError
        When a column is missing, or `top` is below 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"query": 0, "rank": [1, 2], "score": [0.9, 0.4]})
    >>> plot_score_by_rank(frame, ax=Figure().add_subplot()).lines[0].get_ydata().tolist()
    [0.9, 0.4]
    """
    colours = theme_named(theme)
    curves, left_out = score_curves(hits, by=by, top=min(whole("top", top), len(colours.series)))
    with drawing(ax, colours) as axes:
        heading(axes, f"Scores by rank, by {by}", colours)
        if not curves:
            return say(axes, "No hits with a finite score", colours)
        for number, curve in enumerate(curves):
            axes.plot(
                curve.ranks, curve.scores, color=colours.series[number], linestyle=DASHES[number],
                linewidth=1.6, marker=MARKERS[number] if len(curve.ranks) <= _FEW else None, markersize=4,
            )  # fmt: skip
        number_axis(axes, axes.yaxis)
        whole_axis(axes, 0.5)
        axes.set_xlim(0.6, max(int(curve.ranks[-1]) for curve in curves))
        if len(curves) > 1:
            axes.set_ylim(*axes.get_ylim())
            name_lines(
                axes, [curve.scores[-1] for curve in curves], [curve.name for curve in curves], colours
            )
        note = f" (and {counted(left_out, 'more group')} not drawn)" if left_out else ""
        lines = f"; a line is a {drawable(by, longest=24)}" if len(curves) > 1 else ""
        label_axis(axes.xaxis, f"rank (1 is the nearest){lines}{note}", colours)
        label_axis(axes.yaxis, "score", colours)
        return axes
