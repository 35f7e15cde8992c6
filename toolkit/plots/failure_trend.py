"""Failures over time, as bars: as a whole, by a column, or by group."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from toolkit.analysis.gaps import gaps_of
from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import FailureGroups, SignedFailures, grouped_rows, read_rows
from toolkit.analysis.over_time import FailureTrend, Markers, failure_trend
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import choice, instance, whole
from toolkit.drawing import axis
from toolkit.drawing.counted_bars import draw_cells
from toolkit.drawing.gap_hatching import GAP_NOTE, hatch_spans
from toolkit.drawing.style import (
    HATCHES,
    Theme,
    ThemeName,
    documented,
    drawable,
    drawing,
    without_prefix,
)
from toolkit.drawing.wording import counted, readable_top, span
from toolkit.time_zones import time_text

_APART: Final = 0.25  # inches between the names of two times
_LINE: Final = 0.16  # inches of one of several names side by side
_NAMES: Final = 4  # of times side by side
_NARROW: Final = 4.6  # inches up to which a legend is above the Axes

Floats = np.ndarray[Any, np.dtype[Any]]
Layout = Literal["stacked", "facets", "ranked"]
Drawn = tuple[str, float, float]
"""The common prefix of the names of groups, and the inches used beside and above the Axes."""


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
    theme: ThemeName = "light",
) -> Axes:
    """Draw how many failures there were when, as a whole or by a column.

    Bars on one another have a line: what is usual at that hour, the median of earlier weeks, or of earlier
    days where there are no two of them. Where the rate of all changed to another level, a dotted line says
    how many times as high it became.

    Times of which a snapshot may lack failures, as they expired between two syncs, are hatched. They count
    neither for what is usual nor for changes of the rate.

    Failures are counted at `failed_at`, those without it at `created_at`; the label says how many. Not for
    comparing groups that are not at the bottom of a stack bar by bar: facets do that.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to group by, such as ``"workflow_url"``.
    freq : str or timedelta, optional
        Width of a bar, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span.
    top : int
        Number of groups, 1 to 8; all others are one group. Where rows do not fit the height of the
        Axes, there are fewer.
    layout : {"stacked", "facets", "ranked"}
        Bars on one another; a row of bars for each group, each on its own scale; or a row of cells for each
        group, the one with the most failures at the top, coloured by count. Where one burst would flatten
        all other bars, the axis is truncated: it says so, and the burst carries its count.
    now : datetime, optional
        The axis ends at this time. Default: to the last failure.
    tz : str or tzinfo, optional
        The time zone of the axis, in which days are cut, such as ``"Europe/Berlin"``. Default:
        ``TOOLKIT_TZ``, else UTC.
    markers : mapping, Series or iterable of pairs, optional
        Times with names, such as deployments: a mapping from name to time, a Series of times with names as
        its index, or pairs of a time and a name.
    runs : frame, optional
        The run log, from `load_runs`. Bars (not cells) are then failures per 100 runs that started.
    {axes}
        With a sentence instead of bars where there is no failure with a time, or only one.

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
        trend = failure_trend(failures, by=by, freq=freq, top=top, now=now, tz=tz, markers=markers, runs=runs)
        title = f"Failures over time, by {by}" if by else "Failures over time"
        return draw_trend(trend, axes, colours, layout=layout, title=title)


def groups_that_fit(ax: Axes, layout: Layout | Literal["titled"]) -> int:
    """How many groups, and one of all others, a trend can show on these Axes."""
    # a legend above reduces the height of bars, separate rows all of it
    rows = axis.rows_that_fit(ax, 2 if layout == "titled" else 1) - 1
    if layout == "stacked" and axis.inches(ax) < _NARROW:
        rows = axis.rows_that_fit(ax) // 6
    return max(1, min(rows, len(HATCHES) - 1))


def draw_trend(
    trend: FailureTrend,
    ax: Axes,
    theme: Theme,
    *,
    layout: Layout | Literal["titled"] = "stacked",
    title: str = "",
) -> Axes:
    """Draw a computed trend on Axes from `drawing`; "titled" are facets with their names above them."""
    if trend.total <= 1:
        return axis.say(ax, _sentence(trend), theme, title)
    # days since 1970, which is what matplotlib's date axes count
    left = trend.starts.as_unit("ms").asi8 / 86_400_000
    width = trend.step / axis.DAY
    right = float(trend.ends[-1].timestamp() / 86_400)
    axis.limit(ax.xaxis, left[0], right)
    draw = {"ranked": _cells, "facets": _facets, "stacked": _stack, "titled": _titled}[layout]
    prefix, beside, above = draw(trend, ax, theme, left, width)
    axis.time_axis(ax, left[0], right, taken=beside, tz=trend.tz)
    day = axis.DAY.total_seconds()
    hatch_spans(ax, theme, ((start.timestamp() / day, end.timestamp() / day) for start, end in trend.gaps))
    changed = layout == "stacked" and len(trend.changes) > 0 and axis.inches(ax) > _NARROW
    outside = _named_times(trend, ax, theme, left, width, layout)
    axis.label_axis(ax.xaxis, _time_label(trend, outside, changed=changed), theme)
    axis.heading(ax, title, theme, prefix=prefix, above=above)
    return ax


def _stack(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> Drawn:
    base = np.zeros(len(left))
    for number, heights in enumerate(_heights(trend)):
        _bars(trend, ax, theme, number, left, width, heights, base)
        base = base + heights
    top = axis.top_of_bars(ax, base)
    axis.count_axis(ax, _unit(trend), theme, top)
    label = f"{_unit(trend)}{_usual(trend, ax, theme, left, width)}"
    prefix, beside, above = "", 0.0, 0.0
    if len(trend.groups) > 1:
        names, prefix = without_prefix(trend.groups)
        beside, above = axis.legend_of_totals(ax, ax.patches, names, _totals(trend), theme, less=6)
    if top < base.max():
        above += axis.cut(ax, theme, top, (left + width / 2).tolist(), base.tolist())
        label += f"\n(cut at {round(top):,}: see \N{BLACK UP-POINTING TRIANGLE})"
    axis.label_axis(ax.yaxis, label, theme)
    return prefix, beside, above


def _totals(trend: FailureTrend) -> list[str]:
    return [f"{total:,}" for total in trend.counts.sum(axis=1).tolist()]


def _heights(trend: FailureTrend) -> Floats:
    """Failures, or failures per 100 runs, of each group and bin; 0 in bins without runs."""
    return trend.counts if trend.rates is None else np.nan_to_num(100 * trend.rates)


def _unit(trend: FailureTrend) -> str:
    return "failures" if trend.runs is None else "failures per 100 runs"


def _usual(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> str:
    """Draw what is usual at each hour as a line over the bars; what the axis says of it."""
    if trend.runs is not None or not (trend.baseline > 0).any():  # a line at 0 is not seen
        return ""
    edges, usual = np.append(left, left[-1] + width), np.append(trend.baseline, trend.baseline[-1])
    ax.plot(edges, usual, drawstyle="steps-post", color=theme.ink, linewidth=0.9)
    return " (line: usual)"


def _named_times(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float, layout: str) -> int:
    """Markers, and where the rate of all changed, as named vertical lines; how many are outside the axis."""
    low, high = ax.get_xlim()
    lines = [(when.timestamp() / axis.DAY.total_seconds(), name, "-") for when, name in trend.markers]
    lines = [line for line in lines if low <= line[0] <= high]
    outside = len(trend.markers) - len(lines)
    changes = trend.changes[["at", "before", "after"]].itertuples(index=False) if layout == "stacked" else ()
    for at, before, after in changes:
        times = f"\N{MULTIPLICATION SIGN}{_two_digits(after / before)}" if before else "from 0"
        position = left[int(at)]
        beside = [number for number, line in enumerate(lines) if abs(line[0] - position) <= 1.5 * width]
        if beside:
            marker, name, style = lines[beside[-1]]
            lines[beside[-1]] = marker, f"{name} {times}", style
        else:
            lines.append((position, times, ":"))
    lines.sort()
    for position, _, style in lines:
        ax.axvline(position, color=theme.ink, linewidth=1.0, linestyle=style)
    middle = (low + high) / 2
    inch = (high - low) / max(axis.inches(ax), 0.1)
    for group in _together([(position, name) for position, name, _ in lines], middle, inch):
        names = [drawable(name, longest=24) for _, name in group]
        if len(names) > _NAMES:
            names[_NAMES - 1 :] = [f"… {len(names) - _NAMES + 1} more"]
        right = group[-1][0] > middle
        ax.annotate(
            "\n".join(names), xy=(group[0 if right else -1][0], 1.0), xycoords=ax.get_xaxis_transform(),
            xytext=(-2 if right else 2, -2), textcoords="offset points", rotation=90, va="top", ma="right",
            ha="right" if right else "left", color=theme.ink, fontsize=8, parse_math=False,
            bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip
    return outside


def _two_digits(number: float) -> str:
    """The first two digits of a number, without an exponent.

    >>> _two_digits(4.46), _two_digits(168.2), _two_digits(3456.7)
    ('4.5', '170', '3,500')
    """
    return f"{float(f'{number:.2g}'):,.9g}"


def _together(lines: list[tuple[float, str]], middle: float, inch: float) -> list[list[tuple[float, str]]]:
    """Times in groups whose names would overlap: names are drawn towards the middle of the Axes."""
    groups: list[list[tuple[float, str]]] = []
    for line in lines:
        group = [line]
        while groups:
            before = groups[-1]
            between = len(before) * (before[-1][0] <= middle) + len(group) * (group[-1][0] > middle)
            if group[0][0] - before[-1][0] >= inch * max(_APART, _LINE * between):
                break
            group = groups.pop() + group
        groups.append(group)
    return groups


def _facets(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> Drawn:
    """A row of bars for each group, each on its own scale, named at the left."""
    positions = _rows(trend, ax, theme, left, width, 0.85)
    return axis.name_rows(ax, positions, trend.groups, notes=_totals(trend)), 0.5, 0.0


def _titled(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> Drawn:
    """Facets named above their bars."""
    positions = [position + 0.52 for position in _rows(trend, ax, theme, left, width, 0.52)]
    axis.name_above(ax, positions, trend.groups, theme, notes=_totals(trend))
    return "", 0.5, 0.0


def _rows(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float, high: float) -> list[int]:
    """Draw the rows of facets, bars up to so high a part of a row; their positions."""
    tops = [readable_top(heights) for heights in _heights(trend)]
    positions = [-number for number in range(len(trend.groups))]
    for number, (counts, top) in enumerate(zip(_heights(trend), tops, strict=True)):
        heights = np.minimum(counts / top, 1) * high
        _bars(trend, ax, theme, number, left, width, heights, np.full(len(left), -number))
        if counts.max() > top:
            _mark(ax, theme, left + width / 2, counts, -number + high, width)
    axis.name_tops(ax, _unit(trend), theme, positions, tops, high=high)
    return positions


def _mark(ax: Axes, theme: Theme, middles: Floats, counts: Floats, top: float, width: float) -> None:
    """Write the count of a row's tallest, truncated bar beside its top."""
    number = int(counts.argmax())
    right = number < len(counts) * 0.8
    side = middles[number] + (width if right else -width) / 2
    ax.annotate(
        f"\N{BLACK UP-POINTING TRIANGLE} {int(counts[number]):,}", xy=(side, top),
        xytext=(3 if right else -3, 1), textcoords="offset points", ha="left" if right else "right",
        va="top", color=theme.ink, fontsize=8,
    )  # fmt: skip


def _cells(trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float) -> Drawn:
    above = draw_cells(ax, trend.counts, theme, edges=np.append(left, left[-1] + width))
    return axis.name_rows(ax, range(len(trend.groups)), trend.groups, notes=_totals(trend)), 0.0, above


class Bars(PathPatch):
    """Bars of one look as a single artist: hatching hundreds one by one is slow."""

    def __init__(self, lefts: Floats, bottoms: Floats, width: float, heights: Floats, **look: Any) -> None:
        self.lefts, self.bottoms, self.heights = lefts, bottoms, heights
        x = np.stack([lefts, lefts, lefts + width, lefts + width, lefts], axis=1)
        y = np.stack([bottoms, bottoms + heights, bottoms + heights, bottoms, bottoms], axis=1)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(lefts)
        super().__init__(Path(np.stack([x.ravel(), y.ravel()], axis=1), codes), **look)


def _bars(
    trend: FailureTrend, ax: Axes, theme: Theme, number: int, left: Floats, width: float, heights: Floats,
    base: Floats,
) -> None:  # fmt: skip
    last = len(theme.series) - 1
    sign = last if trend.merged and number == len(trend.groups) - 1 else min(number, last)
    tall = heights > 0  # bars of no height would only cost time and bytes
    ax.add_artist(
        Bars(
            left[tall], base[tall], width * 0.92, heights[tall], facecolor=theme.series[sign],
            hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
        )
    )  # fmt: skip


def _sentence(trend: FailureTrend) -> str:
    undated = f" ({counted(trend.undated, 'failure')} without a usable time)" if trend.undated else ""
    if not trend.total:
        return f"No failures{undated}"
    start = trend.starts[trend.counts.sum(axis=0).argmax()]
    if trend.step <= timedelta(minutes=1):
        return f"1 failure, at {time_text(start, ZoneInfo(trend.tz))}{undated}"
    return f"1 failure, within {span(trend.step)} from {time_text(start, ZoneInfo(trend.tz))}{undated}"


def _time_label(trend: FailureTrend, outside: int, *, changed: bool) -> str:
    first = trend.starts[0].tz_convert(trend.tz)
    last = (trend.ends[-1] - timedelta(milliseconds=1)).tz_convert(trend.tz)
    days = f"{last:%d %b %Y}"
    if first.date() != last.date():
        days = f"{first:{'%d %b' if first.year == last.year else '%d %b %Y'}} to {days}"
    width_of_bar = span(trend.step).replace(" ", "\N{NO-BREAK SPACE}")
    notes = [f"time of failure ({trend.tz}), {days}; a bar is {width_of_bar}"]
    if trend.fell_back:
        notes.append(f"{trend.fell_back:,} of {trend.total:,} placed at creation")
    if changed:
        notes.append("\N{MULTIPLICATION SIGN}: how many times as high the rate became there")
    if trend.in_gap.any():
        notes.append(GAP_NOTE)
    if trend.undated:
        notes.append(f"{counted(trend.undated, 'failure')} without a usable time left out")
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
    theme: ThemeName = "light",
) -> Axes:
    """Draw when the failures of which group happened: a row of bars a group, the largest at the top.

    Each row is named, has its own colour and scale, and carries its total, so that one burst flattens
    no other group. Not for comparing sizes of groups: `FailureGroups.plot` does that.

    Parameters
    ----------
    failures : frame
        With the columns that `group_failures` needs.
    groups : FailureGroups or GroupRules, optional
        By whose rules failures are grouped and named. Default: by what they say alone.
    freq, top, layout, now, tz : optional
        As in `plot_failure_trend`.
    {axes}
        With a sentence instead of bars where there is no failure with a time, or only one.

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
    rules = groups.rules if isinstance(groups, FailureGroups) else groups
    rules = GroupRules() if rules is None else instance("groups", rules, GroupRules, "groups, or their rules")
    rows = read_rows(failures, rules)
    grouped, codes = grouped_rows(rows, rules)
    table = times_and_groups(rows, grouped, codes)
    with drawing(ax, theme) as (axes, colours):
        drawn = "titled" if layout == "facets" else layout  # titles of groups are long
        top = min(whole("top", top), groups_that_fit(axes, drawn))
        gaps = gaps_of(failures)
        trend = failure_trend(table, by="group", freq=freq, top=top, now=now, tz=tz, gaps=gaps)
        titles = dict(zip(grouped.frame["group"], grouped.frame["title"], strict=True))
        named = dataclasses.replace(trend, groups=tuple(titles.get(group, group) for group in trend.groups))
        return draw_trend(named, axes, colours, layout=drawn, title="Groups of failures over time")


def times_and_groups(rows: SignedFailures, groups: FailureGroups, codes: npt.NDArray[Any]) -> pa.Table:
    """Rows as `failure_trend` counts them: times, and the `group` by its id, as titles may be equal."""
    ids = groups.frame["group"].to_numpy(dtype=object)
    named = pa.array(ids[codes] if len(ids) else [], pa.string())
    return rows.table.select(["failed_at", "created_at"]).append_column("group", named)
