"""How long messages took to fail."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.lifetimes import FailureDelays, failure_delays
from toolkit.analysis.wording import counted, span
from toolkit.plots.axis import count_axis, heading, inches, label_axis
from toolkit.plots.style import HATCHES, ThemeName, drawing, theme_named
from toolkit.plots.texts import say

_LABEL = 0.5  # inches that a span of time takes as a label


def plot_time_to_failure(failures: IntoFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw the time from creation to failure, in steps that people name.

    What failed at once never worked; what took a day used up its retries. Bars are of equal width and
    steps are not: heights are counts, not densities.

    Parameters
    ----------
    failures : frame
        With the columns `created_at`, `failed_at`.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where no row has both times.

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:00"], utc=True)
    >>> frame = pd.DataFrame({"created_at": start, "failed_at": start + pd.to_timedelta([2, 20], unit="s")})
    >>> ax = plot_time_to_failure(frame, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 1]
    """
    colours = theme_named(theme)
    found = failure_delays(failures)
    with drawing(ax, colours) as axes:
        heading(axes, "Time from creation to failure", colours)
        if not found.total:
            return say(axes, f"No failures with both times{_left_out(found)}", colours)
        places = np.arange(len(found.counts))
        axes.bar(
            places, found.counts, width=0.94, align="edge", color=colours.series[0], hatch=HATCHES[0],
            edgecolor=colours.paper, linewidth=0,
        )  # fmt: skip
        step = max(1, int(np.ceil(len(found.edges) * _LABEL / max(inches(axes), _LABEL))))
        shown = range(0, len(found.edges), step)
        axes.set_xticks(list(shown), [_named(float(found.edges[number])) for number in shown])
        axes.set_xlim(-0.06, len(places))
        count_axis(axes, "failures", colours)
        middle = span(timedelta(seconds=round(found.median)))
        label_axis(
            axes.xaxis, f"time from creation to failure; half within {middle}{_left_out(found)}", colours
        )
        return axes


def _named(seconds: float) -> str:
    return "longer" if np.isinf(seconds) else span(timedelta(seconds=seconds))


def _left_out(found: FailureDelays) -> str:
    return f"\n({counted(found.left_out, 'failure')} without both times)" if found.left_out else ""
