"""Failures by time of expiry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from matplotlib.axes import Axes

from toolkit.analysis.lifetimes import ExpiryBins, expiring, expiry_bins
from toolkit.analysis.over_time import readable_top
from toolkit.analysis.selection import when_counted
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import short_number, span, time_text
from toolkit.plots.axis import DAY, count_axis, cut, heading, inches, label_axis, time_axis
from toolkit.plots.plot_text import say
from toolkit.plots.style import HATCHES, Theme, ThemeName, drawing, theme_named

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = 5.0  # inches from which a label fits on one line


def plot_expiry(
    failures: AnyFrame,
    retention: str | timedelta,
    *,
    now: datetime | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw how many failures leave the queue when: after that they cannot be read again.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`. Rows of a snapshot that have
        left the queue are passed over.
    retention : str or timedelta
        How long the queue keeps an entry: ``"3d"``, ``"7d"``, … by plan.
    now : datetime, optional
        With a time zone. Default: the time of the call.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where nothing is left to expire.

    Raises
    ------
    InputError
        When a column is missing or the retention is not a duration.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> failed = pd.to_datetime(["2026-01-01 00:00", "2026-01-01 03:00"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b"], "workflow_url": "u", "failed_at": failed})
    >>> frame["created_at"] = failed
    >>> now = datetime(2026, 1, 6, 23, tzinfo=UTC)
    >>> ax = plot_expiry(frame, "7d", now=now, ax=Figure().add_subplot())
    >>> int(sum(bar.get_height() for bar in ax.patches))
    2
    """
    colours = theme_named(theme)
    now = when_counted(now)
    found = expiry_bins(expiring(failures, retention, now), now)
    with drawing(ax, colours) as axes:
        return draw_expiry(found, axes, colours, title="Failures by time of expiry")


def draw_expiry(found: ExpiryBins, ax: Axes, theme: Theme, *, title: str = "") -> Axes:
    """Draw computed bins on Axes from `drawing`."""
    if not found.total:
        heading(ax, title, theme)
        return say(ax, f"Nothing left to expire{_aside(found)}", theme)
    start, width = (found.now - _EPOCH) / DAY, found.step / DAY
    left = start + width * np.arange(len(found.counts))
    tall = found.counts > 0
    ax.bar(
        left[tall], found.counts[tall], width=width * 0.92, align="edge", color=theme.series[3],
        hatch=HATCHES[0], edgecolor=theme.paper, linewidth=0,
    )  # fmt: skip
    time_axis(ax, left[0], left[-1] + width)
    count_axis(ax, "failures that expire", theme)
    top, above = readable_top(found.counts), 0.0
    if top < found.counts.max():
        above = cut(ax, theme, top, (left + width / 2).tolist(), found.counts.tolist())
        sentence = (
            f"failures that expire\n(cut at {short_number(round(top))}: see \N{BLACK UP-POINTING TRIANGLE})"
        )
        label_axis(ax.yaxis, sentence, theme)
    heading(ax, title, theme, above=above)
    between = " " if inches(ax) > _WIDE else "\n"
    label = f"time of expiry (UTC), from {time_text(found.now)} on;{between}a bar is {span(found.step)}"
    label_axis(ax.xaxis, label + _aside(found).replace(" (", "\n(", 1), theme)
    return ax


def _aside(found: ExpiryBins) -> str:
    parts = [
        f"{number:,} {what}"
        for number, what in ((found.due, "due already"), (found.unknown, "without a usable time"))
        if number
    ]
    return f" ({', '.join(parts)})" if parts else ""
