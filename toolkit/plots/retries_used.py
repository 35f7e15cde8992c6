"""How many retries there were."""

from __future__ import annotations

from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.lifetimes import RetriesUsed, retries_used
from toolkit.analysis.wording import counted
from toolkit.plots.axis import count_axis, heading, label_axis, legend, whole_axis
from toolkit.plots.style import HATCHES, Theme, ThemeName, drawing, theme_named
from toolkit.plots.texts import say


def plot_retries_used(frame: IntoFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw how many retries there were: made, for callbacks; allowed, for failures, which know no more.

    Parameters
    ----------
    frame : frame
        Callbacks (`retried`, `max_retries`) or failures (`max_retries`).
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where no row has a number.

    Raises
    ------
    InputError
        When `max_retries` is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> ax = plot_retries_used(pd.DataFrame({"max_retries": [3, 3, 0]}), ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 0, 2]
    """
    colours = theme_named(theme)
    found = retries_used(frame)
    left_out = f" ({counted(found.left_out, 'row')} without a number)" if found.left_out else ""
    with drawing(ax, colours) as axes:
        title = "Retries allowed to failures" if found.allowed_only else "Retries made for callbacks"
        heading(axes, title, colours)
        if not found.total:
            return say(axes, f"No retries known{left_out}", colours)
        axes.bar(
            found.retries, found.used_up, width=0.8, color=colours.series[0], hatch=HATCHES[0],
            edgecolor=colours.paper, linewidth=0,
        )  # fmt: skip
        if found.others.any():
            heading(axes, title, colours, above=_others(found, axes, colours))
        count_axis(axes, "failures" if found.allowed_only else "callbacks", colours)
        whole_axis(axes, 0.4)
        axes.set_xlim(-0.6, len(found.retries) - 0.4)
        label_axis(axes.xaxis, f"retries {'allowed' if found.allowed_only else 'made'}{left_out}", colours)
        return axes


def _others(found: RetriesUsed, ax: Axes, theme: Theme) -> float:
    ax.bar(
        found.retries, found.others, width=0.8, bottom=found.used_up, color=theme.series[1], hatch=HATCHES[1],
        edgecolor=theme.paper, linewidth=0,
    )  # fmt: skip
    return legend(ax, ax.containers, ["retries used up", "retries left"], theme)[1]
