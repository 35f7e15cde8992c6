"""How the failure functions of failed runs stand."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.counts import count_states
from toolkit.analysis.selection import NONE
from toolkit.analysis.wording import counted
from toolkit.plots.axis import heading, label_axis
from toolkit.plots.rows import draw_rows
from toolkit.plots.style import ThemeName, drawing, theme_named
from toolkit.plots.texts import say

_SIGNS: Final = {"CALLBACK_FAIL": 3, "CALLBACK_INPROGRESS": 1, "CALLBACK_CANCELED": 6, "CALLBACK_SUCCESS": 2}
_MERGED: Final = 8
_SHORT: Final = {
    "CALLBACK_FAIL": "failed",
    "CALLBACK_INPROGRESS": "in progress",
    "CALLBACK_CANCELED": "canceled",
    "CALLBACK_SUCCESS": "succeeded",
}


def plot_callback_states(failures: IntoFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw how many failures have which state of their failure function, those that need a person first.

    Parameters
    ----------
    failures : frame
        With the column `failure_function_state`.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where there are no rows.

    Raises
    ------
    InputError
        When the column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]})
    >>> ax = plot_callback_states(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['failed', 'succeeded']
    """
    colours = theme_named(theme)
    found = count_states(failures)
    with drawing(ax, colours) as axes:
        heading(axes, "States of failure functions", colours)
        if not len(found):
            return say(axes, "No failures", colours)
        states = [state if isinstance(state, str) else NONE for state in found["state"]]
        names = [_SHORT.get(state, state) for state in states]
        counts = [int(count) for count in found["count"]]
        draw_rows(axes, names, counts, colours, signs=[_SIGNS.get(state, _MERGED) for state in states])
        label_axis(axes.xaxis, f"failure function of {counted(sum(counts), 'failure')}", colours)
        return axes
