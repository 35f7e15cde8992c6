"""Plot failures over time as bars: all together, by a column, or by group."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, tzinfo
from typing import Final, get_args
from zoneinfo import ZoneInfo

from matplotlib.axes import Axes

from toolkit.base.arguments import choice, instance, whole
from toolkit.base.time_zones import time_text, time_zone
from toolkit.base.times import parse_time
from toolkit.drawing import axis, row_names
from toolkit.drawing.drawable import drawable
from toolkit.drawing.gap_hatching import GAP_NOTE, hatch_spans
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import (
    HATCHES,
    Theme,
    ThemeName,
    check_drawing,
    documented,
    drawing,
)
from toolkit.drawing.wording import counted, percent, span
from toolkit.failures.gaps import gaps_of
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, grouped_rows, times_and_groups
from toolkit.failures.over_time import FailureTrend, Markers, failure_trend
from toolkit.failures.signed_failures import read_rows, with_learned
from toolkit.failures.sources import AnyFrame
from toolkit.failures.time_bins import bin_width
from toolkit.failures.trend_bars import DrawnLayout, Layout, TrendBars
from toolkit.failures.trend_markers import draw_lines, marker_lines, with_changes

_TITLED: Final = 2.2  # lines of height of a row with the name above the bars
_HEADING: Final = 0.3  # inches of height that a heading takes of the rows
_LONGEST_NAME: Final = 32  # columns of the name of a group in a title
_NARROW: Final = 4.6  # inches of width below which a legend is above the Axes
_DAY: Final = axis.DAY.total_seconds()
_DAY_MS: Final = 86_400_000


@documented
def plot_failure_trend(
    failures: AnyFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    layout: Layout = "stacked",
    now: datetime | None = None,
    tz: str | tzinfo | None = None,
    markers: Markers | None = None,
    runs: AnyFrame | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the number of failures over time, all together or by a column.

    A line over stacked bars shows the usual number at that hour: the median of earlier weeks, or of earlier
    days if two weeks are not available. If the overall rate changed to another level, a dotted line names the
    factor, for example "x3".

    Times for which a snapshot may lack failures, because they expired between two syncs, are hatched. They
    count neither for the usual number nor for changes of the rate.

    Failures are counted at `failed_at`. If a failure has none, `created_at` is used, and the label shows how
    many there are. Stacked bars are not suited to compare single bars of groups; use facets for that.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to group by, for example ``"workflow_url"``.
    freq : str or timedelta, optional
        Width of a bar, in whole minutes ("15min", "6h", "1d"). If omitted, it is chosen from the span.
    top : int
        Number of groups, 1 to 8; all others are one group. There are fewer if the rows do not fit the height
        of the Axes.
    layout : {"stacked", "facets", "ranked"}
        Stacked bars; a row of bars per group, each on its own scale; or a row of cells per group, coloured by
        count, with the largest group at the top. If one burst would flatten all other bars, the axis is
        truncated: the label shows that, and the burst is marked with its count.
    now : datetime, optional
        End of the axis. If omitted, the axis ends at the last failure.
    tz : str or tzinfo, optional
        Time zone of the axis and of the limits of days, for example ``"Europe/Berlin"``. If omitted,
        ``TOOLKIT_TZ``, or UTC if it is not set.
    markers : mapping, Series or iterable of pairs, optional
        Times with names, for example deployments: a mapping from name to time, a Series of times with names
        as the index, or pairs of a time and a name.
    runs : frame, optional
        Run log from `load_runs`. Bars (not cells) are then failures per 100 runs that started.
    {axes}
        If fewer than two failures have a time, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> ax = plot_failure_trend(frame, freq="1h", ax=Figure().add_subplot())
    >>> ax.patches[0].heights.tolist()
    [1, 1]
    """
    layout = choice("layout", layout, get_args(Layout))
    with drawing(ax, theme) as (axes, colours):
        top = min(whole("top", top), groups_that_fit(axes, layout))
        trend = failure_trend(
            failures,
            by=by,
            freq=freq,
            top=top,
            now=now,
            tz=tz,
            markers=markers,
            runs=runs,
        )
        title = f"Failures over time, by {by}" if by else "Failures over time"
        return draw_trend(trend, axes, colours, layout=layout, title=title)


def groups_that_fit(ax: Axes, layout: DrawnLayout) -> int:
    """Return how many groups a trend can show on these Axes, next to one group of all others."""
    rows = row_names.rows_that_fit(ax) - 1
    if layout == "titled":
        # A row is a line for the name and as much for the bars; the heading takes a part of the height.
        height = axis.space_high(ax) - _HEADING
        rows = int(height / axis.LINE_HEIGHT / _TITLED) - 1
    elif layout == "stacked" and axis.inches(ax) < _NARROW:
        # a legend above the Axes reduces the height of the bars
        rows = row_names.rows_that_fit(ax) // 6

    return max(1, min(rows, len(HATCHES) - 1))


def draw_trend(
    trend: FailureTrend,
    ax: Axes,
    theme: Theme,
    *,
    layout: DrawnLayout = "stacked",
    title: str = "",
) -> Axes:
    """Draw a computed trend on Axes from `drawing`; "titled" are facets with their names above them."""
    if trend.total <= 1:
        return axis.show_sentence(ax, _sentence(trend), theme, title)

    left = trend.starts.as_unit("ms").asi8 / _DAY_MS
    right = float(trend.ends[-1].timestamp() / _DAY)
    axis.limit(ax.xaxis, left[0], right)
    bars = TrendBars(trend, ax, theme, left, width=trend.step / axis.DAY)
    around = bars.draw(layout)
    axis.time_axis(ax, left[0], right, taken=around.right_inches, tz=trend.tz)
    gaps = (
        (start.timestamp() / _DAY, end.timestamp() / _DAY) for start, end in trend.gaps
    )
    hatch_spans(ax, theme, gaps)
    lines = marker_lines(trend, ax)
    outside = len(trend.markers) - len(lines)
    if layout == "stacked":
        lines = with_changes(lines, trend, left, bars.width)
    draw_lines(lines, ax, theme)
    axis.label_axis(ax.xaxis, _time_label(trend, outside), theme)
    title = axis.with_finding(title, _finding(trend, named=layout != "titled"))
    axis.heading(ax, title, theme, prefix=around.prefix, above=around.above_inches)

    return ax


def _finding(trend: FailureTrend, *, named: bool) -> str:
    """Return the main statement of the plot, for example "26 % in orders/fulfil".

    If the rows are not `named`, for example because their titles are long, the statement has no name.
    """
    totals = trend.counts.sum(axis=1)
    if len(totals) == 1:
        busiest = trend.starts[int(trend.counts[0].argmax())].tz_convert(trend.tz)
        return f"most on {busiest:%d %b}"

    own = totals[:-1] if trend.merged else totals
    share = percent(own.max() / trend.total)
    if not named:
        return f"the largest has {share}"

    names, _ = without_prefix(trend.groups)
    return f"{share} in {drawable(names[int(own.argmax())], longest=_LONGEST_NAME)}"


def _sentence(trend: FailureTrend) -> str:
    """Return the sentence that replaces a trend of at most one failure."""
    undated = axis.left_out(trend.undated, "failure", "without a usable time")
    if not trend.total:
        return f"No failures{undated}"

    start = time_text(
        trend.starts[trend.counts.sum(axis=0).argmax()], ZoneInfo(trend.tz)
    )
    if trend.step <= timedelta(minutes=1):
        return f"1 failure, at {start}{undated}"

    return f"1 failure, within {span(trend.step)} from {start}{undated}"


def _days_of(trend: FailureTrend) -> str:
    """Return the first and the last day, for example "28 Feb to 03 Mar 2026"."""
    first = trend.starts[0].tz_convert(trend.tz)
    last = (trend.ends[-1] - timedelta(milliseconds=1)).tz_convert(trend.tz)
    if first.date() == last.date():
        return f"{last:%d %b %Y}"
    if first.year == last.year and first.month == last.month:
        return f"{first:%d} to {last:%d %b %Y}"
    if first.year == last.year:
        return f"{first:%d %b} to {last:%d %b %Y}"

    return f"{first:%d %b %Y} to {last:%d %b %Y}"


def _time_label(trend: FailureTrend, outside: int) -> str:
    """Return the label of the time axis, with a line per note that the plot needs."""
    width_of_bar = span(trend.step).replace(" ", "\N{NO-BREAK SPACE}")
    notes = [f"failed at ({trend.tz}), {_days_of(trend)}; bars of {width_of_bar}"]
    if trend.fell_back:
        notes.append(
            f"{trend.fell_back:,} of {trend.total:,} have no failure time: at creation"
        )

    if trend.in_gap.any():
        notes.append(GAP_NOTE)
    if trend.undated:
        notes.append(
            f"{counted(trend.undated, 'failure')} without a usable time left out"
        )

    if outside:
        notes.append(f"{counted(outside, 'marker')} outside this time left out")
    return "\n".join(notes)


@documented
def plot_failure_groups(
    failures: AnyFrame,
    *,
    groups: FailureGroups | GroupRules | None = None,
    freq: str | timedelta | None = None,
    top: int = 6,
    layout: Layout = "facets",
    now: datetime | None = None,
    tz: str | tzinfo | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the failures of each group over time: one row of bars per group, the largest group at the top.

    Each row has a name, a total, a colour and a scale, so that one burst does not flatten other groups. To
    compare the sizes of groups, use `FailureGroups.plot` instead.

    Parameters
    ----------
    failures : frame
        With the columns that `group_failures` needs.
    groups : FailureGroups or GroupRules, optional
        Rules that group and name failures. If omitted, only their messages count.
    freq, top, layout, now, tz : optional
        As in `plot_failure_trend`.
    {axes}
        If fewer than two failures have a time, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30", "2026-01-01 12:40"], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "response_status": 500,
    ...     "failed_at": times, "created_at": times, "response_body_base64": None,
    ...     "response_body": ["no order 17", "no order 4711", "disk full"]})
    >>> ax = plot_failure_groups(frame, freq="1h", ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.texts if "  " in text.get_text()]
    ['no order <num>  2', 'disk full  1']
    """
    layout = choice("layout", layout, get_args(Layout))
    if groups is None:
        groups = GroupRules()
    if isinstance(groups, FailureGroups):
        groups = groups.rules
    rules = instance("groups", groups, GroupRules, "groups, or their rules")
    top, zone = whole("top", top), time_zone(tz)
    if freq is not None:
        bin_width(freq)
    if now is not None:
        now = parse_time(now, exact=True, name="now")
    check_drawing(ax, theme)
    rules = with_learned(rules, failures)
    rows = read_rows(failures, rules)
    grouped, codes = grouped_rows(rows, rules)
    table = times_and_groups(rows, grouped, codes)

    with drawing(ax, theme) as (axes, colours):
        drawn_layout: DrawnLayout = layout
        if layout == "facets":  # titles of groups are long
            drawn_layout = "titled"
        top = min(top, groups_that_fit(axes, drawn_layout))
        gaps = gaps_of(failures)
        trend = failure_trend(
            table, by="group", freq=freq, top=top, now=now, tz=zone, gaps=gaps
        )
        titles = dict(zip(grouped.frame["group"], grouped.frame["title"], strict=True))
        named = dataclasses.replace(
            trend, groups=tuple(titles.get(group, group) for group in trend.groups)
        )
        return draw_trend(
            named,
            axes,
            colours,
            layout=drawn_layout,
            title="Groups of failures over time",
        )
