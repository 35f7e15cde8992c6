"""The scores of two configurations against each other."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from narwhals.typing import IntoFrame

from toolkit.analysis.scores import score_moves
from toolkit.arguments import texts as checked_texts
from toolkit.arguments import wrong
from toolkit.plots.axis import heading, inches, label_axis, legend, number_axis
from toolkit.plots.style import ThemeName, drawing, theme_named
from toolkit.plots.texts import COLUMN, drawable, say


def plot_score_comparison(
    before: IntoFrame,
    after: IntoFrame,
    *,
    names: tuple[str, str] = ("before", "after"),
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw each hit's score in one configuration against its score in another.

    Hits of one of the two alone stand on its margin. Whether the order moved is what counts; that all points
    lie off the diagonal only says that the two measure differently.

    Parameters
    ----------
    before, after : frame
        Results of the same queries, with the columns `query`, `rank`, `id`, `score`.
    names : (str, str)
        What the two are called.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of points where there are no hits.

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> before = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> after = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["b", "c"], "score": [0.7, 0.6]})
    >>> ax = plot_score_comparison(before, after, ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['1 in both', '1 only before', '1 only after', 'equal scores']
    """
    colours = theme_named(theme)
    called = checked_texts("names", names)
    if len(called) != 2:  # noqa: PLR2004 - one each
        raise wrong("names", names, "two texts, for before and after")
    moves = score_moves(before, after)
    x, y = (
        moves[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("score_before", "score_after")
    )
    with drawing(ax, colours) as axes:
        # the legend names them behind a mark and a count
        room = max(6.0, min(24.0, inches(axes) / COLUMN - 15))
        first, second = (drawable(name, longest=room) for name in called)
        both, lost, new = np.isfinite(x) & np.isfinite(y), np.isfinite(x), np.isfinite(y)
        lost, new = lost & ~both, new & ~both
        title = f"Scores: {first} and {second}"
        texts = [f"{both.sum():,} in both", f"{lost.sum():,} only {first}", f"{new.sum():,} only {second}"]
        if not (both.any() or lost.any() or new.any()):
            heading(axes, title, colours)
            return say(axes, "No hits with a finite score", colours)
        values = np.concatenate([x[np.isfinite(x)], y[np.isfinite(y)]])
        low, high = float(values.min()), float(values.max())
        room = (high - low) * 0.06 or 0.5
        margin = low - room
        axes.plot(
            [margin, high], [margin, high], color=colours.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=0
        )
        kinds = (
            (x[both], y[both], "o", 0),
            (x[lost], np.full(lost.sum(), margin), "v", 3),
            (np.full(new.sum(), margin), y[new], "<", 2),
        )
        for across, up, marker, sign in kinds:
            axes.scatter(
                across, up, s=28, marker=MarkerStyle(marker, "full"), color=colours.series[sign], linewidths=0
            )
        axes.set_xlim(margin - room, high + room)
        axes.set_ylim(margin - room, high + room)
        number_axis(axes, axes.xaxis)
        number_axis(axes, axes.yaxis)
        label_axis(axes.xaxis, f"score {first}", colours)
        label_axis(axes.yaxis, f"score {second}", colours)
        handles = [*axes.collections, axes.lines[0]]
        _, above = legend(axes, handles, [*texts, "equal scores"], colours)
        heading(axes, title, colours, above=above)
        return axes
