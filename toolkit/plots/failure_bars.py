"""Failures as bars: by state of the failure function, number of retries, and time from creation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from toolkit.analysis.counts import SHORT_STATES, count_states
from toolkit.analysis.lifetimes import (
    ExpiryBins,
    FailureDelays,
    expiring,
    expiry_bins,
    failure_delays,
    retries_used,
)
from toolkit.analysis.over_time import readable_top
from toolkit.analysis.selection import NONE, when_counted
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, percent, short_number, span, time_text
from toolkit.plots import axis
from toolkit.plots.style import HATCHES, Theme, ThemeName, documented, drawing, say, theme_named
from toolkit.times import DAY_MS, milliseconds, parse_duration

_SIGNS: Final = {"CALLBACK_FAIL": 3, "CALLBACK_INPROGRESS": 1, "CALLBACK_CANCELED": 6, "CALLBACK_SUCCESS": 2}
_MERGED: Final = 8
_SPAN: Final = 0.5  # inches of a duration as a label


@documented
def plot_callback_states(failures: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw how many failures have which state of their failure function, those that need a person first.

    Parameters
    ----------
    failures : frame
        With the column `failure_function_state`.
    {axes}
        With a sentence instead of bars where there are no rows.

    Raises
    ------
    InputError
        When the column is missing.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]})
    >>> ax = plot_callback_states(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['failed', 'succeeded']
    """
    colours = theme_named(theme)
    counted_states = count_states(failures)
    with drawing(ax, colours) as axes:
        axis.heading(axes, "States of failure functions", colours)
        if not len(counted_states):
            return say(axes, "No failures", colours)
        states = [state if isinstance(state, str) else NONE for state in counted_states["state"]]
        names = [SHORT_STATES.get(state, state) for state in states]
        counts = [int(count) for count in counted_states["count"]]
        draw_rows(axes, names, counts, colours, [_SIGNS.get(state, _MERGED) for state in states])
        axis.label_axis(axes.xaxis, f"failure function of {counted(sum(counts), 'failure')}", colours)
        return axes


def draw_rows(
    ax: Axes, names: Sequence[str], counts: Sequence[int], theme: Theme, signs: Sequence[int]
) -> None:
    """A horizontal bar a row, the first at the top, its count and share written behind it."""
    total = max(sum(counts), 1)
    most = max(counts, default=1)
    for number, (count, sign) in enumerate(zip(counts, signs, strict=True)):
        ax.barh(number, count, height=0.7, **theme.bar(sign))
        ax.annotate(
            f"{count:,}  ({percent(count / total)})", xy=(count, number), xytext=(4, 0),
            textcoords="offset points", va="center", color=theme.ink, fontsize=9,
        )  # fmt: skip
    axis.name_rows(ax, range(len(names)), names)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.6)  # a single bar does not fill the Axes
    ax.set_xlim(0, most * 1.35)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.grid(visible=False)


@documented
def plot_retries_used(frame: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw how many retries there were: made, for callbacks; allowed, for failures, which know no more.

    Parameters
    ----------
    frame : frame
        Callbacks (`retried`, `max_retries`) or failures (`max_retries`).
    {axes}
        With a sentence instead of bars where no row has a number.

    Raises
    ------
    InputError
        When `max_retries` is missing.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_retries_used(pd.DataFrame({"max_retries": [3, 3, 0]}), ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 0, 2]
    """
    colours = theme_named(theme)
    retries = retries_used(frame)
    left_out = f" ({counted(retries.left_out, 'row')} without a number)" if retries.left_out else ""
    with drawing(ax, colours) as axes:
        title = "Retries allowed to failures" if retries.allowed_only else "Retries made for callbacks"
        axis.heading(axes, title, colours)
        if not retries.total:
            return say(axes, f"No retries known{left_out}", colours)
        axes.bar(retries.retries, retries.used_up, width=0.8, **colours.bar(0))
        if retries.others.any():
            axes.bar(retries.retries, retries.others, width=0.8, bottom=retries.used_up, **colours.bar(1))
            _, above = axis.legend(axes, axes.containers, ["retries used up", "retries left"], colours)
            axis.heading(axes, title, colours, above=above)
        axis.count_axis(axes, "failures" if retries.allowed_only else "callbacks", colours)
        axis.whole_axis(axes, 0.4)
        axes.set_xlim(-0.6, len(retries.retries) - 0.4)
        axis.label_axis(
            axes.xaxis, f"retries {'allowed' if retries.allowed_only else 'made'}{left_out}", colours
        )
        return axes


@documented
def plot_time_to_failure(failures: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw the time from creation to failure, in steps that people name.

    Immediate failures never worked; those after a day used up their retries. Bars are of equal width and
    steps are not: heights are counts, not densities.

    Parameters
    ----------
    failures : frame
        With the columns `created_at`, `failed_at`.
    {axes}
        With a sentence instead of bars where no row has both times.

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:00"], utc=True)
    >>> frame = pd.DataFrame({"created_at": start, "failed_at": start + pd.to_timedelta([2, 20], unit="s")})
    >>> ax = plot_time_to_failure(frame, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 1]
    """
    colours = theme_named(theme)
    delays = failure_delays(failures)
    with drawing(ax, colours) as axes:
        axis.heading(axes, "Time from creation to failure", colours)
        if not delays.total:
            return say(axes, f"No failures with both times{_left_out(delays)}", colours)
        positions = np.arange(len(delays.counts))
        axes.bar(positions, delays.counts, width=0.94, align="edge", **colours.bar(0))
        step = max(1, int(np.ceil(len(delays.edges) * _SPAN / max(axis.inches(axes), _SPAN))))
        shown = range(0, len(delays.edges), step)
        axes.set_xticks(list(shown), [_named(float(delays.edges[number])) for number in shown])
        axes.set_xlim(-0.06, len(positions))
        axis.count_axis(axes, "failures", colours)
        middle = span(timedelta(seconds=max(1, round(delays.median))))
        axis.label_axis(
            axes.xaxis, f"time from creation to failure; half within {middle}{_left_out(delays)}", colours
        )
        return axes


def _named(seconds: float) -> str:
    return "longer" if np.isinf(seconds) else span(timedelta(seconds=seconds))


def _left_out(delays: FailureDelays) -> str:
    return f"\n({counted(delays.left_out, 'failure')} without both times)" if delays.left_out else ""


_WIDE = 5.0  # inches from which a label fits on one line


@documented
def plot_expiry(
    failures: AnyFrame,
    retention: str | timedelta = "7d",
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
        How long the queue keeps an entry, by plan: ``"3d"``, ``"7d"``, ``"90d"``; the title says it.
    now : datetime, optional
        With a time zone. Default: the time of the call.
    {axes}
        With a sentence instead of bars where nothing is left to expire.

    Raises
    ------
    InputError
        When a column is missing or the retention is not a duration.

    Examples
    --------
    >>> from datetime import UTC, datetime
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
    bins = expiry_bins(expiring(failures, retention, now), now)
    kept = span(parse_duration(retention, name="retention"))
    with drawing(ax, colours) as axes:
        return draw_expiry(bins, axes, colours, title=f"Failures by time of expiry, kept {kept}")


def draw_expiry(bins: ExpiryBins, ax: Axes, theme: Theme, *, title: str = "") -> Axes:
    """Draw computed bins on Axes from `drawing`."""
    if not bins.total:
        axis.heading(ax, title, theme)
        return say(ax, f"Nothing left to expire{_aside(bins)}", theme)
    start, width = milliseconds(bins.now) / DAY_MS, bins.step / axis.DAY
    left = start + width * np.arange(len(bins.counts))
    tall = bins.counts > 0
    look = theme.bar(3) | {"hatch": HATCHES[0]}
    ax.bar(left[tall], bins.counts[tall], width=width * 0.92, align="edge", **look)
    axis.time_axis(ax, left[0], left[-1] + width)
    axis.count_axis(ax, "failures that expire", theme)
    top, above = readable_top(bins.counts), 0.0
    if top < bins.counts.max():
        above = axis.cut(ax, theme, top, (left + width / 2).tolist(), bins.counts.tolist())
        sentence = (
            f"failures that expire\n(cut at {short_number(round(top))}: see \N{BLACK UP-POINTING TRIANGLE})"
        )
        axis.label_axis(ax.yaxis, sentence, theme)
    axis.heading(ax, title, theme, above=above)
    between = " " if axis.inches(ax) > _WIDE else "\n"
    label = f"time of expiry (UTC), from {time_text(bins.now)} on;{between}a bar is {span(bins.step)}"
    axis.label_axis(ax.xaxis, label + _aside(bins).replace(" (", "\n(", 1), theme)
    return ax


def _aside(bins: ExpiryBins) -> str:
    counts = ((bins.due, "due already"), (bins.unknown, "without a usable time"))
    parts = [f"{number:,} {what}" for number, what in counts if number]
    return f" ({', '.join(parts)})" if parts else ""
