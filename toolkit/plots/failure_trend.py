"""Failures over time, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.trend import FailureTrend, failure_trend
from toolkit.analysis.wording import counted, moment, short_number, span
from toolkit.errors import InputError
from toolkit.plots.axis import (
    CHARACTER,
    DAY,
    count_axis,
    inches,
    label_axis,
    name_rows,
    rows_that_fit,
    time_axis,
)
from toolkit.plots.heat import draw_cells
from toolkit.plots.style import HATCHES, Theme, ThemeName, drawing, theme_named
from toolkit.plots.texts import as_written, drawable, say

_LEGEND_COLUMNS: Final = 3

Floats = np.ndarray[Any, np.dtype[Any]]
Layout = Literal["stacked", "facets", "ranked"]


def plot_failure_trend(
    failures: IntoFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    layout: Layout = "stacked",
    now: datetime | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw how many failures there were when, as a whole or by a column.

    Failures stand at `failed_at`, those without it at `created_at`; the label says how many. Not for
    comparing groups that are not at the bottom of a stack bar by bar: facets do that.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to tell apart, such as ``"workflow_url"``.
    freq : str or timedelta, optional
        Width of a bar, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span.
    top : int
        How many groups to tell apart, 1 to 8; the rest is one group. Where rows do not fit the height of the
        Axes, there are fewer.
    layout : {"stacked", "facets", "ranked"}
        Bars on one another; a row of bars for each group, on one scale; or a row of cells for each group, the
        one with the most failures at the top, coloured by count.
    now : datetime, optional
        The axis goes on to this time. Default: to the last failure.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where there is no failure with a time, or only one.

    Raises
    ------
    InputError
        When a column is missing or an option is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> ax = plot_failure_trend(frame, freq="1h", ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 1]
    """
    if layout not in get_args(Layout):
        raise InputError(
            "drawing a trend", got=f"layout={layout!r}", expected="'stacked', 'facets' or 'ranked'"
        )
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        # a legend may take two fifths of the height, rows of their own all of it
        rows = rows_that_fit(axes) * 2 // 5 if layout == "stacked" else rows_that_fit(axes) - 1
        trend = failure_trend(
            failures, by=by, freq=freq, top=min(top, max(rows, 1), len(colours.series) - 1), now=now
        )
        return draw_trend(trend, axes, colours, layout=layout)


def draw_trend(trend: FailureTrend, ax: Axes, theme: Theme, *, layout: Layout = "stacked") -> Axes:
    """Draw a computed trend on Axes from `drawing`."""
    if trend.total <= 1:
        return say(ax, _sentence(trend), theme)
    # days since 1970, which is what matplotlib's date axes count
    left = trend.starts.as_unit("ms").asi8 / 86_400_000
    width = trend.step / DAY
    if layout == "ranked":
        _cells(trend, ax, theme, left, width)
    elif layout == "facets":
        _facets(trend, ax, theme, left, width)
    else:
        _stack(trend, ax, theme, left, width)
    time_axis(ax, left[0], left[-1] + width)
    label_axis(ax.xaxis, _time_label(trend), theme)
    return ax


def _stack(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> None:
    base = np.zeros(len(left))
    for number, heights in enumerate(trend.counts):
        _bars(trend, ax, theme, number, left, width, heights, base)
        base = base + heights
    count_axis(ax, "failures", theme)
    if len(trend.groups) > 1:
        _legend(ax, trend, theme)


def _facets(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> None:
    tallest = int(trend.counts.max())
    for number, counts in enumerate(trend.counts):
        _bars(trend, ax, theme, number, left, width, counts * (0.85 / tallest), np.full(len(left), -number))
    _row_names(trend, ax, [-number for number in range(len(trend.groups))])
    ax.set_ylim(-len(trend.groups) + 0.9, 1)
    label_axis(ax.yaxis, f"failures\n(tallest bar: {short_number(tallest)})", theme)


def _cells(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> None:
    draw_cells(ax, trend.counts, theme, edges=np.append(left, left[-1] + width))
    _row_names(trend, ax, range(len(trend.groups)))
    label_axis(ax.yaxis, f"failures\n(brightest cell: {short_number(int(trend.counts.max()))})", theme)


def _row_names(trend: FailureTrend, ax: Axes, places: Sequence[float]) -> None:
    totals = [short_number(total) for total in trend.counts.sum(axis=1).tolist()]
    name_rows(ax, places, trend.groups, notes=totals)


def _bars(
    trend: FailureTrend, ax: Axes, theme: Theme, number: int, left: Floats, width: float, heights: Floats,
    base: Floats,
) -> None:  # fmt: skip
    last = len(theme.series) - 1
    sign = last if trend.merged and number == len(trend.groups) - 1 else min(number, last)
    tall = heights > 0  # bars of no height would only cost time and bytes
    ax.bar(
        left[tall], heights[tall], width=width * 0.92, bottom=base[tall], align="edge",
        color=theme.series[sign], hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
    )  # fmt: skip


def _sentence(trend: FailureTrend) -> str:
    undated = f" ({counted(trend.undated, 'failure')} without a usable time)" if trend.undated else ""
    if not trend.total:
        return f"No failures{undated}"
    start = trend.starts[trend.counts.sum(axis=0).argmax()]
    if trend.step <= timedelta(minutes=1):
        return f"1 failure, at {moment(start)}{undated}"
    return f"1 failure, within {span(trend.step)} from {moment(start)}{undated}"


def _time_label(trend: FailureTrend) -> str:
    first, last = trend.starts[0], trend.starts[-1] + trend.step - timedelta(milliseconds=1)
    days = f"{last:%d %b %Y}"
    if first.date() != last.date():
        days = f"{first:{'%d %b' if first.year == last.year else '%d %b %Y'}} to {days}"
    width_of_bar = span(trend.step).replace(" ", "\N{NO-BREAK SPACE}")
    notes = [f"time of failure (UTC), {days}; a bar is {width_of_bar}"]
    if trend.fell_back:
        notes.append(f"{trend.fell_back:,} of {trend.total:,} placed at creation")
    if trend.undated:
        notes.append(f"{counted(trend.undated, 'failure')} without a usable time left out")
    return "\n".join(notes)


def _legend(ax: Axes, trend: FailureTrend, theme: Theme) -> None:
    room = inches(ax)
    longest = max(16, min(48, int(room / CHARACTER) - 8))
    totals = trend.counts.sum(axis=1).tolist()
    names = [
        f"{drawable(name, longest=longest)}  {short_number(total)}"
        for name, total in zip(trend.groups, totals, strict=True)
    ]
    columns = max(1, min(_LEGEND_COLUMNS, int(room / (max(map(len, names)) * CHARACTER + 0.5))))
    # handles and labels are given: a label that matplotlib finds by itself vanishes when it begins with "_"
    legend = ax.legend(
        ax.containers, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        fontsize=9, labelcolor=theme.ink, handlelength=1.4, handleheight=0.7,
        handletextpad=0.8, labelspacing=0.4, columnspacing=1.6, borderpad=0.2, borderaxespad=0.3,
    )  # fmt: skip
    as_written(legend.get_texts())
