"""Failures over time, as bars."""

from __future__ import annotations

import math
import textwrap
from datetime import UTC, datetime, timedelta
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from narwhals.typing import IntoFrame

from toolkit.analysis.trend import FailureTrend, failure_trend
from toolkit.analysis.wording import counted, moment, short_number, span
from toolkit.plots.style import HATCHES, Theme, ThemeName, fixed_settings, prepare, theme_named
from toolkit.plots.texts import as_written, drawable, say

_DAY: Final = timedelta(days=1)
_MONDAY: Final = 4  # 1970-01-05
_TICK_STEPS: Final = tuple(
    timedelta(minutes=minutes)
    for minutes in (
        5,
        15,
        30,
        60,
        180,
        360,
        720,
        *(1440 * days for days in (1, 2, 4, 7, 14, 28, 91, 364, 1820)),
    )
)
_TICK_WIDTH: Final = 0.75  # inches that a tick label and the gap beside it take
_CHARACTER: Final = 0.085  # inches, of a legend's text
_LEGEND_COLUMNS: Final = 3


def plot_failure_trend(
    failures: IntoFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    now: datetime | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw how many failures there were when, as bars, stacked by a column.

    Failures stand at `failed_at`, those without it at `created_at`; the label says how many. Not for
    comparing groups that are not at the bottom of the stack bar by bar: use `failure_trend` for the numbers.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to stack by, such as ``"workflow_url"``.
    freq : str or timedelta, optional
        Width of a bar, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span.
    top : int
        How many groups to tell apart, 1 to 8; the rest is one group.
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
    colours = theme_named(theme)
    trend = failure_trend(failures, by=by, freq=freq, top=min(top, len(colours.series) - 1), now=now)
    with fixed_settings():
        return draw_trend(trend, prepare(ax, colours), colours)


def draw_trend(trend: FailureTrend, ax: Axes, theme: Theme) -> Axes:
    """Draw a computed trend on prepared Axes, within `fixed_settings`."""
    if trend.total <= 1:
        return say(ax, _sentence(trend), theme)
    # days since 1970, which is what matplotlib's date axes count
    left = trend.starts.as_unit("ms").asi8 / 86_400_000
    width = trend.step / _DAY
    base = trend.counts[0] * 0
    for number, heights in enumerate(trend.counts):
        last = len(theme.series) - 1
        sign = last if trend.merged and number == len(trend.groups) - 1 else min(number, last)
        tall = heights > 0  # bars of no height would only cost time and bytes
        ax.bar(
            left[tall], heights[tall], width=width * 0.92, bottom=base[tall], align="edge",
            color=theme.series[sign], hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip
        base = base + heights
    _time_axis(ax, left[0], left[-1] + width)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    ax.set_ylabel("failures", color=theme.muted, fontsize=9)
    ax.set_xlabel(_time_label(trend, _inches(ax)), color=theme.muted, fontsize=9, parse_math=False)
    if len(trend.groups) > 1:
        _legend(ax, trend, theme)
    return ax


def _time_axis(ax: Axes, start: float, end: float) -> None:
    # Ticks are chosen here because matplotlib's date locators let labels overlap on narrow Axes.
    most = max(2, int(_inches(ax) / _TICK_WIDTH))
    step = next((step for step in _TICK_STEPS if (end - start) / step.total_seconds() * 86_400 <= most), None)
    days = (step or _TICK_STEPS[-1]) / _DAY
    origin = _MONDAY if days % 7 == 0 else 0
    first = math.ceil((start - origin) / days - 1e-9) * days + origin
    ticks = [first + number * days for number in range(int((end - first) / days + 1e-9) + 1)] or [start]
    ax.set_xlim(start, end)
    ax.set_xticks(ticks, [_tick_label(tick, days, first=number == 0) for number, tick in enumerate(ticks)])


def _tick_label(tick: float, days: float, *, first: bool) -> str:
    when = datetime.fromtimestamp(round(tick * 86_400), tz=UTC)
    if days >= 28:  # noqa: PLR2004 - four weeks
        return f"{when:%b %Y}"
    if days >= 1:
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M}\n{when.day} {when:%b}" if first or when.hour + when.minute == 0 else f"{when:%H:%M}"


def _inches(ax: Axes) -> float:
    return ax.get_window_extent().width / ax.figure.dpi


def _sentence(trend: FailureTrend) -> str:
    undated = f" ({counted(trend.undated, 'failure')} without a usable time)" if trend.undated else ""
    if not trend.total:
        return f"No failures{undated}"
    start = trend.starts[trend.counts.sum(axis=0).argmax()]
    if trend.step <= timedelta(minutes=1):
        return f"1 failure, at {moment(start)}{undated}"
    return f"1 failure, within {span(trend.step)} from {moment(start)}{undated}"


def _time_label(trend: FailureTrend, width: float) -> str:
    first, last = trend.starts[0], trend.starts[-1]
    days = f"{first:%d %b %Y}" if first.date() == last.date() else f"{first:%d %b} to {last:%d %b %Y}"
    width_of_bar = span(trend.step).replace(" ", "\N{NO-BREAK SPACE}")
    notes = [f"time of failure (UTC), {days}; a bar is {width_of_bar}"]
    if trend.fell_back:
        notes.append(f"{trend.fell_back:,} of {trend.total:,} placed at creation: no failure time known")
    if trend.undated:
        notes.append(f"{counted(trend.undated, 'failure')} without a usable time left out")
    room = max(24, int(width / _CHARACTER * 1.1))
    return "\n".join(line for note in notes for line in textwrap.wrap(note, room))


def _legend(ax: Axes, trend: FailureTrend, theme: Theme) -> None:
    room = _inches(ax)
    longest = max(16, min(48, int(room / _CHARACTER) - 8))
    totals = trend.counts.sum(axis=1).tolist()
    names = [
        f"{drawable(name, longest=longest)}  {short_number(total)}"
        for name, total in zip(trend.groups, totals, strict=True)
    ]
    columns = max(1, min(_LEGEND_COLUMNS, int(room / (max(map(len, names)) * _CHARACTER + 0.5))))
    # handles and labels are given: a label that matplotlib finds by itself vanishes when it begins with "_"
    legend = ax.legend(
        ax.containers, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        fontsize=9, labelcolor=theme.ink, handlelength=1.4, borderaxespad=0.3,
    )  # fmt: skip
    as_written(legend.get_texts())
