"""Plot failures over time as bars: all together, by a column, or by group."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from toolkit.base.arguments import choice, instance, whole
from toolkit.base.time_zones import time_text, time_zone
from toolkit.base.times import parse_time
from toolkit.drawing import axis, row_names
from toolkit.drawing.counted_bars import draw_cells
from toolkit.drawing.drawable import drawable, without_prefix
from toolkit.drawing.gap_hatching import GAP_NOTE, hatch_spans
from toolkit.drawing.style import (
    HATCHES,
    Theme,
    ThemeName,
    check_drawing,
    documented,
    drawing,
)
from toolkit.drawing.wording import counted, percent, readable_top, span
from toolkit.failures.gaps import gaps_of
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import FailureGroups, grouped_rows
from toolkit.failures.over_time import FailureTrend, Markers, failure_trend
from toolkit.failures.signed_failures import SignedFailures, read_rows
from toolkit.failures.sources import AnyFrame
from toolkit.failures.time_bins import bin_width

_TITLED: Final = 2.2  # lines of height of a row with the name above the bars
_HEADING: Final = 0.3  # inches of height that a heading takes of the rows
_APART: Final = 0.25  # inches between the names of two times
_LINE: Final = 0.16  # inches of one of several names side by side
_NAMES: Final = 4  # times side by side at most; further ones are counted
_LONGEST_NAME: Final = 32  # columns of the name of a group in a title
_NARROW: Final = 4.6  # inches of width below which a legend is above the Axes
# bins between a marker and a change of the rate that share a line
_SAME_BIN: Final = 1.5

Floats = np.ndarray[Any, np.dtype[Any]]
Layout = Literal["stacked", "facets", "ranked"]
Drawn = tuple[str, float, float]
"""The common prefix of the names of groups, and the inches used at the right of and above the Axes."""


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


def groups_that_fit(ax: Axes, layout: Layout | Literal["titled"]) -> int:
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
    layout: Layout | Literal["titled"] = "stacked",
    title: str = "",
) -> Axes:
    """Draw a computed trend on Axes from `drawing`; "titled" are facets with their names above them."""
    if trend.total <= 1:
        return axis.show_sentence(ax, _sentence(trend), theme, title)
    # days since 1970, the unit of matplotlib's date axes
    left = trend.starts.as_unit("ms").asi8 / 86_400_000
    width = trend.step / axis.DAY
    right = float(trend.ends[-1].timestamp() / 86_400)
    axis.limit(ax.xaxis, left[0], right)
    draw = {"ranked": _cells, "facets": _facets, "stacked": _stack, "titled": _titled}[
        layout
    ]
    prefix, right_inches, above = draw(trend, ax, theme, left, width)
    axis.time_axis(ax, left[0], right, taken=right_inches, tz=trend.tz)
    day = axis.DAY.total_seconds()
    hatch_spans(
        ax,
        theme,
        ((start.timestamp() / day, end.timestamp() / day) for start, end in trend.gaps),
    )
    lines = _marker_lines(trend, ax)
    outside = len(trend.markers) - len(lines)
    if layout == "stacked":
        _add_changes(lines, trend, left, width)
    if axis.inches_high(ax) < axis.LOW:
        # low Axes have no room for the word
        lines = [line._replace(name=line.name.removeprefix("rate ")) for line in lines]
    _draw_lines(lines, ax, theme)
    axis.label_axis(ax.xaxis, _time_label(trend, outside), theme)
    finding = _finding(trend, named=layout != "titled")
    title = axis.with_finding(title, finding)
    axis.heading(ax, title, theme, prefix=prefix, above=above)
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


def _stack(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float
) -> Drawn:
    base = np.zeros(len(left))
    for number, heights in enumerate(_heights(trend)):
        _bars(trend, ax, theme, number, left, width, heights, base)
        base = base + heights
    top = axis.top_of_bars(ax, base)
    axis.count_axis(ax, _unit(trend), theme, top)
    label = _unit(trend)
    if _draw_usual(trend, ax, theme, left, width):
        label += " (line: usual)"
    prefix = ""
    right_inches = above = 0.0
    if len(trend.groups) > 1:
        names, prefix = without_prefix(trend.groups)
        right_inches, above = axis.legend_of_totals(
            ax, ax.patches, names, _totals(trend), theme, less=6
        )
    if top < base.max():
        above += axis.cut(ax, theme, top, (left + width / 2).tolist(), base.tolist())
        label += f"\n(cut at {round(top):,}: see \N{BLACK UP-POINTING TRIANGLE})"
    axis.label_axis(ax.yaxis, label, theme)
    return prefix, right_inches, above


def _totals(trend: FailureTrend) -> list[str]:
    return [f"{total:,}" for total in trend.counts.sum(axis=1).tolist()]


def _heights(trend: FailureTrend) -> Floats:
    """Return failures, or failures per 100 runs, by group and bin; 0 in bins without runs."""
    if trend.rates is None:
        return trend.counts
    return np.nan_to_num(100 * trend.rates)


def _unit(trend: FailureTrend) -> str:
    if trend.runs is None:
        return "failures"
    return "failures per 100 runs"


def _draw_usual(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float
) -> bool:
    """Draw the usual number of failures as a line over the bars. Return False if it is not known."""
    if trend.runs is not None or not (trend.baseline > 0).any():
        # a line at 0 is not visible
        return False
    edges = np.append(left, left[-1] + width)
    usual = np.append(trend.baseline, trend.baseline[-1])
    ax.plot(edges, usual, drawstyle="steps-post", color=theme.ink, linewidth=0.9)
    return True


class _MarkerLine(NamedTuple):
    """A named vertical line; `position` is in days since 1970."""

    position: float
    name: str
    style: str


def _marker_lines(trend: FailureTrend, ax: Axes) -> list[_MarkerLine]:
    """Return a line per marker that is on the axis."""
    low, high = ax.get_xlim()
    day = axis.DAY.total_seconds()
    lines = [
        _MarkerLine(when.timestamp() / day, name, "-") for when, name in trend.markers
    ]
    return [line for line in lines if low <= line.position <= high]


def _add_changes(
    lines: list[_MarkerLine], trend: FailureTrend, left: Floats, width: float
) -> None:
    """Add a line per change of the overall rate. A change close to a marker is named on the marker's line.

    For example, a rate that triples within 1.5 bins of the marker "deploy" gives the name "deploy x3".
    """
    for at, before, after in trend.changes[["at", "before", "after"]].itertuples(
        index=False
    ):
        factor = "rate from 0"
        if before:
            factor = f"rate \N{MULTIPLICATION SIGN}{_two_digits(after / before)}"
        position = left[int(at)]
        close = [
            number
            for number, line in enumerate(lines)
            if abs(line.position - position) <= _SAME_BIN * width
        ]
        if close:
            marker = lines[close[-1]]
            name = f"{marker.name} {factor.removeprefix('rate ')}"
            lines[close[-1]] = marker._replace(name=name)
        else:
            lines.append(_MarkerLine(position, factor, ":"))


def _draw_lines(lines: list[_MarkerLine], ax: Axes, theme: Theme) -> None:
    """Draw vertical lines and their names."""
    lines = sorted(lines)
    for line in lines:
        ax.axvline(line.position, color=theme.ink, linewidth=1.0, linestyle=line.style)
    low, high = ax.get_xlim()
    middle = (low + high) / 2
    inch = (high - low) / max(axis.inches(ax), 0.1)
    for group in _together(lines, middle, inch):
        names = [drawable(line.name, longest=24) for line in group]
        if len(names) > _NAMES:
            names[_NAMES - 1 :] = [f"… {len(names) - _NAMES + 1} more"]
        # names are drawn towards the middle of the Axes: at the left of lines in the right half
        anchor, offset, alignment = group[-1], 2, "left"
        if group[-1].position > middle:
            anchor, offset, alignment = group[0], -2, "right"
        ax.annotate(
            "\n".join(names), xy=(anchor.position, 1.0), xycoords=ax.get_xaxis_transform(),
            xytext=(offset, -2), textcoords="offset points", rotation=90, va="top", ma="right",
            ha=alignment, color=theme.ink, fontsize=8, parse_math=False,
            bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip


def _two_digits(number: float) -> str:
    """Return the first two digits of a number, without an exponent.

    >>> _two_digits(4.46), _two_digits(168.2), _two_digits(3456.7)
    ('4.5', '170', '3,500')
    """
    return f"{float(f'{number:.2g}'):,.9g}"


def _together(
    lines: list[_MarkerLine], middle: float, inch: float
) -> list[list[_MarkerLine]]:
    """Group lines whose names would overlap.

    Names are drawn towards the middle of the Axes. Between two groups are therefore the names of the left one
    if it is in the left half, and the names of the right one if it is in the right half.
    """
    groups: list[list[_MarkerLine]] = []
    for line in lines:
        group = [line]
        # a merged group has more names, and can overlap the group before it
        while groups:
            before = groups[-1]
            names_between = 0
            if before[-1].position <= middle:
                names_between += len(before)
            if group[-1].position > middle:
                names_between += len(group)
            if group[0].position - before[-1].position >= inch * max(
                _APART, _LINE * names_between
            ):
                break
            group = groups.pop() + group
        groups.append(group)
    return groups


def _facets(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float
) -> Drawn:
    """Draw a row of bars per group, each on its own scale, named at the left."""
    # names are at half the height of the bars: between two rows, they could belong to either
    high = 0.85
    middles = [
        position + high / 2 for position in _rows(trend, ax, theme, left, width, high)
    ]
    prefix = row_names.name_rows(ax, middles, trend.groups, notes=_totals(trend))
    return prefix, 0.5, 0.0


def _titled(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float
) -> Drawn:
    """Draw facets that are named above their bars."""
    positions = [
        position + 0.52 for position in _rows(trend, ax, theme, left, width, 0.52)
    ]
    row_names.name_above(ax, positions, trend.groups, theme, notes=_totals(trend))
    return "", 0.5, 0.0


def _rows(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float, high: float
) -> list[int]:
    """Draw the rows of facets and return their positions. Bars use the part `high` of the height of a row."""
    tops = [readable_top(heights) for heights in _heights(trend)]
    positions = [-number for number in range(len(trend.groups))]
    for number, (counts, top) in enumerate(zip(_heights(trend), tops, strict=True)):
        heights = np.minimum(counts / top, 1) * high
        _bars(
            trend, ax, theme, number, left, width, heights, np.full(len(left), -number)
        )
        if counts.max() > top:
            _mark(ax, theme, left + width / 2, counts, -number + high, width)
    row_names.name_tops(ax, _unit(trend), theme, positions, tops, high=high)
    return positions


def _mark(
    ax: Axes, theme: Theme, middles: Floats, counts: Floats, top: float, width: float
) -> None:
    """Write the count of a truncated bar next to the top of the bar: at the left of it near the right end."""
    number = int(counts.argmax())
    side, offset, alignment = middles[number] + width / 2, 3, "left"
    if number >= len(counts) * 0.8:
        side, offset, alignment = middles[number] - width / 2, -3, "right"
    ax.annotate(
        f"\N{BLACK UP-POINTING TRIANGLE} {int(counts[number]):,}", xy=(side, top), xytext=(offset, 1),
        textcoords="offset points", ha=alignment, va="top", color=theme.ink, fontsize=8,
    )  # fmt: skip


def _cells(
    trend: FailureTrend, ax: Axes, theme: Theme, left: Floats, width: float
) -> Drawn:
    above = draw_cells(ax, trend.counts, theme, edges=np.append(left, left[-1] + width))
    return (
        row_names.name_rows(
            ax, range(len(trend.groups)), trend.groups, notes=_totals(trend)
        ),
        0.0,
        above,
    )


class Bars(PathPatch):
    """Bars of one look as a single artist, because hatching hundreds of bars one by one is slow."""

    def __init__(
        self, lefts: Floats, bottoms: Floats, width: float, heights: Floats, **look: Any
    ) -> None:
        self.lefts, self.bottoms, self.heights = lefts, bottoms, heights
        x = np.stack([lefts, lefts, lefts + width, lefts + width, lefts], axis=1)
        y = np.stack(
            [bottoms, bottoms + heights, bottoms + heights, bottoms, bottoms], axis=1
        )
        codes = np.tile(
            [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY],
            len(lefts),
        )
        super().__init__(Path(np.stack([x.ravel(), y.ravel()], axis=1), codes), **look)


def _bars(
    trend: FailureTrend, ax: Axes, theme: Theme, number: int, left: Floats, width: float, heights: Floats,
    base: Floats,
) -> None:  # fmt: skip
    last = len(theme.series) - 1
    sign = min(number, last)
    if trend.merged and number == len(trend.groups) - 1:
        sign = last
    tall = heights > 0  # bars without height would only cost time and bytes
    ax.add_artist(
        Bars(
            left[tall], base[tall], width * 0.92, heights[tall], facecolor=theme.series[sign],
            hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
        )
    )  # fmt: skip


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
    rows = read_rows(failures, rules)
    grouped, codes = grouped_rows(rows, rules)
    table = times_and_groups(rows, grouped, codes)
    with drawing(ax, theme) as (axes, colours):
        drawn_layout: Layout | Literal["titled"] = layout
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


def times_and_groups(
    rows: SignedFailures, groups: FailureGroups, codes: npt.NDArray[Any]
) -> pa.Table:
    """Return the times and the `group` of each row, for `failure_trend`.

    Groups are named by their ids, because titles may be equal.
    """
    group_ids = groups.frame["group"].to_numpy(dtype=object)
    row_groups = group_ids[codes] if len(group_ids) else []
    times = rows.table.select(["failed_at", "created_at"])
    return times.append_column("group", pa.array(row_groups, pa.string()))
