"""Plot counts of failures: bars by state, retries, delay and expiry; cells by hour or by two columns."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from toolkit.base.arguments import whole
from toolkit.base.time_zones import shown_in, time_zone
from toolkit.base.times import DAY_MS, milliseconds
from toolkit.drawing import axis, row_names
from toolkit.drawing.counted_bars import draw_cells, draw_rows
from toolkit.drawing.drawable import drawable
from toolkit.drawing.gap_hatching import GAP_NOTE, hatch_cells
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import HATCHES, Theme, ThemeName, documented, drawing
from toolkit.drawing.wording import counted, percent, short_number, span
from toolkit.failures.calendars import WEEKDAYS, FailureCalendar, failure_calendar
from toolkit.failures.counts import (
    SHORT_STATES,
    CountMatrix,
    count_matrix,
    count_states,
)
from toolkit.failures.lifetimes import (
    ExpiryBins,
    bins_of_failures,
    failure_delays,
    retries_used,
)
from toolkit.failures.retention import retention_of
from toolkit.failures.selection import NONE, when_counted
from toolkit.failures.sources import AnyFrame

_SIGNS: Final = {
    "CALLBACK_FAIL": 3,
    "CALLBACK_INPROGRESS": 1,
    "CALLBACK_CANCELED": 6,
    "CALLBACK_SUCCESS": 2,
}
_MERGED: Final = 8
_SPAN: Final = 0.5  # inches of a duration as a label
_HIGH: Final = 0.15  # inches of height of a number or the name of a weekday
_HOUR: Final = 0.3  # inches of the label of an hour
_NAME: Final = 0.6  # inches of the name of a column at least


@documented
def plot_callback_states(
    failures: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "auto"
) -> Axes:
    """Draw the number of failures by state of the failure function; states that need a person come first.

    Parameters
    ----------
    failures : frame
        With the column `failure_function_state`.
    {axes}
        Without rows, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]})
    >>> ax = plot_callback_states(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['failed', 'succeeded']
    """
    states = count_states(failures)
    with drawing(ax, theme) as (axes, colours):
        title = "States of failure functions"
        if not len(states):
            return axis.show_sentence(axes, "No failures", colours, title)
        known = [state if isinstance(state, str) else NONE for state in states["state"]]
        names = [SHORT_STATES.get(state, state) for state in known]
        counts = states["count"].tolist()
        draw_rows(
            axes,
            names,
            counts,
            colours,
            [_SIGNS.get(state, _MERGED) for state in known],
        )
        axis.heading(
            axes, axis.with_finding(title, _most_frequent(names, counts)), colours
        )
        axis.label_axis(
            axes.xaxis,
            f"failure function of {counted(sum(counts), 'failure')}",
            colours,
        )
        return axes


def _most_frequent(names: list[str], counts: list[int]) -> str:
    """Return the shares of the two most frequent names, for example "54 % succeeded, 13 % failed"."""
    total = sum(counts)
    pairs = sorted(zip(counts, names, strict=True), reverse=True)
    known = [(count, name) for count, name in pairs if name != NONE]

    return ", ".join(f"{percent(count / total)} {name}" for count, name in known[:2])


@documented
def plot_retries_used(
    frame: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "auto"
) -> Axes:
    """Draw the number of retries: made retries of callbacks, or allowed retries of failures.

    Failures do not record how many retries were made.

    Parameters
    ----------
    frame : frame
        Callbacks (`retried`, `max_retries`) or failures (`max_retries`).
    {axes}
        If no row has a number, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_retries_used(pd.DataFrame({"max_retries": [3, 3, 0]}), ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 0, 2]
    """
    retries = retries_used(frame)
    remark = axis.left_out(retries.left_out, "row", "without a number")
    made, unit, title = "made", "callbacks", "Retries made for callbacks"
    if retries.allowed_only:
        made, unit, title = "allowed", "failures", "Retries allowed to failures"
    with drawing(ax, theme) as (axes, colours):
        if not retries.total:
            return axis.show_sentence(axes, f"No retries known{remark}", colours, title)
        axes.bar(retries.retries, retries.used_up, width=0.8, **colours.bar(0))

        above = 0.0
        if retries.others.any():
            axes.bar(
                retries.retries,
                retries.others,
                width=0.8,
                bottom=retries.used_up,
                **colours.bar(1),
            )
            _, above = axis.legend(
                axes, axes.containers, ["retries used up", "retries left"], colours
            )

        numbers = retries.used_up + retries.others
        most = int(numbers.argmax())
        share = percent(numbers[most] / retries.total)
        verb = "allow" if retries.allowed_only else "made"
        finding = f"{share} {verb} {retries.retries[most]}"
        axis.heading(axes, axis.with_finding(title, finding), colours, above=above)
        axis.count_axis(axes, unit, colours, numbers.max())
        axis.whole_axis(axes, 0.4)
        axis.limit(axes.xaxis, -0.6, len(retries.retries) - 0.4)
        axis.label_axis(axes.xaxis, f"retries {made}{remark}", colours)
        return axes


@documented
def plot_time_to_failure(
    failures: AnyFrame, *, ax: Axes | None = None, theme: ThemeName = "auto"
) -> Axes:
    """Draw the time from creation to failure, in common steps such as a minute or an hour.

    Immediate failures never worked; failures after a day used up their retries. Bars have equal widths
    although steps differ: heights are counts, not densities.

    Parameters
    ----------
    failures : frame
        With the columns `created_at`, `failed_at`.
    {axes}
        If no row has both times, they show a sentence instead of bars.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:00"], utc=True)
    >>> frame = pd.DataFrame({"created_at": start, "failed_at": start + pd.to_timedelta([2, 20], unit="s")})
    >>> ax = plot_time_to_failure(frame, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 0, 1]
    """
    delays = failure_delays(failures)
    remark = axis.left_out(delays.left_out, "failure", "without both times")
    with drawing(ax, theme) as (axes, colours):
        title = "Time from creation to failure"
        if not delays.total:
            return axis.show_sentence(
                axes, f"No failures with both times{remark}", colours, title
            )

        positions = np.arange(len(delays.counts))
        axes.bar(positions, delays.counts, width=0.94, align="edge", **colours.bar(0))
        step = max(
            1, int(np.ceil(len(delays.edges) * _SPAN / max(axis.inches(axes), _SPAN)))
        )
        shown = range(0, len(delays.edges), step)
        axes.set_xticks(
            list(shown), [_named(float(delays.edges[number])) for number in shown]
        )
        axis.limit(axes.xaxis, -0.06, len(positions))
        axis.count_axis(axes, "failures", colours, delays.counts.max())
        middle = span(timedelta(seconds=max(1, round(delays.median))))
        axis.heading(axes, axis.with_finding(title, f"half within {middle}"), colours)
        label = f"time to failure{remark}"
        axis.label_axis(axes.xaxis, label, colours)
        return axes


def _named(seconds: float) -> str:
    if np.isinf(seconds):
        return "longer"
    return span(timedelta(seconds=seconds))


@documented
def plot_expiry(
    failures: AnyFrame,
    retention: str | timedelta | None = None,
    *,
    now: datetime | None = None,
    tz: str | tzinfo | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw when failures expire. After that they leave the queue and cannot be read again.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`. Rows of a snapshot that have
        left the queue are omitted.
    retention : str or timedelta, optional
        As in `find_expiring`; it is shown in the title.
    now : datetime, optional
        With a time zone. If omitted, the time of the call.
    tz : str or tzinfo, optional
        Time zone of the axis. If omitted, ``TOOLKIT_TZ``, or UTC if it is not set.
    {axes}
        If nothing is left to expire, they show a sentence instead of bars.

    {raises}

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
    now = when_counted(now)
    kept = retention_of(failures, retention, now)
    bins = bins_of_failures(failures, kept, now)

    title = "Failures by time of expiry"
    with shown_in(time_zone(tz)), drawing(ax, theme) as (axes, colours):
        if not kept.is_known:
            return axis.show_sentence(
                axes, f"How long failures are kept is {kept.words}", colours, title
            )

        return draw_expiry(bins, axes, colours, title=f"{title}, kept {kept.words}")


def draw_expiry(bins: ExpiryBins, ax: Axes, theme: Theme, *, title: str = "") -> Axes:
    """Draw computed bins on Axes from `drawing`."""
    notes = axis.aside(
        (bins.due, "due already"), (bins.unknown, "without a usable time")
    )
    if not bins.total:
        return axis.show_sentence(
            ax, f"Nothing left to expire {notes}".rstrip(), theme, title
        )

    start, width = milliseconds(bins.now) / DAY_MS, bins.step / axis.DAY
    left = start + width * np.arange(len(bins.counts))
    tall = bins.counts > 0
    look = theme.bar(3) | {"hatch": HATCHES[0]}
    ax.bar(left[tall], bins.counts[tall], width=width * 0.92, align="edge", **look)
    axis.time_axis(ax, left[0], left[-1] + width, tz=time_zone().key)
    top = axis.top_of_bars(ax, bins.counts)
    above = 0.0
    axis.count_axis(ax, "failures that expire", theme, top)

    if top < bins.counts.max():
        above = axis.cut(
            ax, theme, top, (left + width / 2).tolist(), bins.counts.tolist()
        )
        note = (
            f"(cut at {short_number(round(top))}: see \N{BLACK UP-POINTING TRIANGLE})"
        )
        axis.label_axis(ax.yaxis, f"failures that expire\n{note}", theme)

    busiest = bins.now + int(bins.counts.argmax()) * bins.step
    finding = f"most on {busiest.astimezone(time_zone()):%d %b}"
    axis.heading(ax, axis.with_finding(title, finding), theme, above=above)
    label = f"time of expiry ({time_zone().key}); bars of {span(bins.step)}"
    axis.label_axis(ax.xaxis, f"{label}\n{notes}".rstrip(), theme)

    return ax


@documented
def plot_failure_calendar(
    failures: AnyFrame,
    *,
    tz: str | tzinfo | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the number of failures by weekday and hour, as coloured cells.

    Hours for which a snapshot may lack failures, because they expired between two syncs, are hatched: their
    counts may be too low. For example, a gap from Monday to Wednesday hatches these days, even if other weeks
    have failures there.

    Do not use it to find when failures began: weeks are overlaid. `plot_failure_trend` has a time axis.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str or tzinfo, optional
        Time zone of weekdays and hours, for example ``"Europe/Istanbul"``.
    {axes}
        If no failure has a time, they show a sentence instead of cells.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> ax = plot_failure_calendar(frame, ax=Figure().add_subplot())
    >>> ax.get_xlabel()
    'hour of the day (UTC), 2 failures'
    """
    calendar = failure_calendar(failures, tz=tz)
    with drawing(ax, theme) as (axes, colours):
        return draw_calendar(
            calendar, axes, colours, title="Failures by weekday and hour"
        )


def draw_calendar(
    calendar: FailureCalendar, ax: Axes, theme: Theme, *, title: str = ""
) -> Axes:
    """Draw a computed calendar on Axes from `drawing`."""
    undated = axis.left_out(calendar.undated, "failure", "without a usable time")
    if not calendar.total:
        return axis.show_sentence(ax, f"No failures{undated}", theme, title)

    above = draw_cells(ax, calendar.counts, theme)
    hatch_cells(ax, theme, calendar.in_gap)
    weekday, hour = divmod(int(calendar.counts.argmax()), 24)
    finding = f"most on {WEEKDAYS[weekday]} at {hour:02}:00"
    axis.heading(ax, axis.with_finding(title, finding), theme, above=above)
    # as many weekdays and hours have labels as fit
    days = next(
        (days for days in (1, 2, 3) if axis.space_high(ax) * days / 7 > _HIGH), 6
    )
    row_names.name_rows(ax, range(0, 7, days), WEEKDAYS[::days])
    hours = next(
        (hours for hours in (1, 2, 3, 6) if axis.inches(ax) / (24 / hours) > _HOUR), 12
    )
    ax.set_xticks(range(0, 24, hours), [f"{hour:02}" for hour in range(0, 24, hours)])
    label = [
        f"hour of the day ({calendar.tz}), {counted(calendar.total, 'failure')}{undated}"
    ]
    if calendar.fell_back:
        label.append(f"{calendar.fell_back:,} have no failure time; placed at creation")
    if calendar.in_gap.any():
        label.append(GAP_NOTE)
    axis.label_axis(ax.xaxis, "\n".join(label), theme)
    return ax


@documented
def plot_failure_matrix(
    failures: AnyFrame,
    *,
    rows: str = "workflow_url",
    columns: str = "response_status",
    top: int = 12,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    r"""Draw the number of failures by two columns, as coloured cells.

    Parameters
    ----------
    failures : frame
        With the two columns.
    rows, columns : str
        Columns of single values.
    top : int
        Number of rows; all others are one row. There are fewer if they do not fit the height.
    {axes}
        Without rows, they show a sentence instead of cells.

    {raises}

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "response_status": [500, 404, 500]})
    >>> ax = plot_failure_matrix(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['500\n2', '404\n1']
    """
    with drawing(ax, theme) as (axes, colours):
        matrix = count_matrix(
            failures, rows, columns, top_rows=min(whole("top", top), row_names.rows_that_fit(axes) - 1),
            top_columns=max(1, int(axis.inches(axes) * 0.6 / _NAME)),
        )  # fmt: skip
        return draw_matrix(
            matrix,
            axes,
            colours,
            columns=columns,
            title=f"Failures by {rows} and {columns}",
        )


def draw_matrix(
    matrix: CountMatrix, ax: Axes, theme: Theme, *, columns: str, title: str = ""
) -> Axes:
    """Draw a computed matrix on Axes from `drawing`; `columns` is the name of the counted column."""
    if not matrix.total:
        return axis.show_sentence(ax, "No failures", theme, title)

    above = draw_cells(ax, matrix.counts, theme)
    totals = [f"{total:,}" for total in matrix.counts.sum(axis=1).tolist()]
    of_rows = row_names.name_rows(
        ax, range(len(matrix.rows)), matrix.rows, notes=totals
    )
    of_columns = row_names.name_columns(
        ax, matrix.columns, matrix.counts.sum(axis=0).tolist()
    )
    # a scheme alone comes first
    prefixes = sorted({of_rows, of_columns} - {""}, key=len)
    row, column = np.unravel_index(matrix.counts.argmax(), matrix.counts.shape)
    row_names_short = without_prefix(matrix.rows)[0]
    column_names_short = without_prefix(matrix.columns)[0]
    finding = f"{matrix.counts[row, column]:,} with {column_names_short[column]} in {row_names_short[row]}"
    title = axis.with_finding(title, finding)
    axis.heading(ax, title, theme, prefix=" and ".join(prefixes), above=above)
    total = counted(matrix.total, "failure")
    axis.label_axis(
        ax.xaxis,
        f"{drawable(columns, longest=24)}, and failures; {total} in all",
        theme,
    )

    return ax
