"""Make the sections of a failure report with counts: times, workflows, groups, expiry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.python_code import Code, PublicCall, fill, variable
from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import counted, short_number, span
from toolkit.failures.calendars import WEEKDAYS, failure_calendar
from toolkit.failures.counts import count_by, count_labels, count_matrix, count_states
from toolkit.failures.gaps import gaps_of
from toolkit.failures.lifetimes import bins_of_failures
from toolkit.failures.selection import select
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.reports.findings import CAPS, ONCE, ReportCounts, zone_option
from toolkit.reports.section_figures import (
    calendar_figure,
    expiry_figure,
    matrix_figure,
    trend_figure,
)
from toolkit.reports.sections import (
    Part,
    ReportCode,
    ReportColumn,
    ReportFigure,
    ReportList,
    ReportText,
    Section,
    read_time,
    table,
)
from toolkit.secrets.redaction import Redactor

_TREND: Final = PublicCall("plots.plot_failure_trend", ("by", "top", "markers", "tz"))
_CALENDAR: Final = PublicCall("plots.plot_failure_calendar", ("tz",))
_EXPIRY: Final = "tk.plots.plot_expiry(failures, {kept})\n\ntk.analysis.count_expiring(failures, {kept})"
MATRIX_ROWS: Final = 8  # workflows and statuses in the matrix
MATRIX_COLUMNS: Final = 6
_ROW: Final = 0.32  # height of a row of cells, in inches
_SHARE: Final = ReportColumn("share", "share")
_WORKFLOW: Final = ReportColumn("workflow", below=True)


def masked_columns(failures: AnyFrame, redactor: Redactor) -> SelectedRows:
    """Return the columns that figures need. Workflow names are drawn, so secrets in them are masked."""
    columns = ["failed_at", "created_at", "workflow_url", "response_status"]
    rows = select(failures, columns, doing="making a report")
    urls = (
        rows.choose(["workflow_url"]).count("workflow_url")["workflow_url"].drop_null()
    )
    masked = pa.array(map(redactor.text, urls.to_pylist()), pa.string())

    return rows.then(partial(_with_urls, urls.combine_chunks(), masked))


def _with_urls(urls: pa.Array, masked: pa.Array, table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("workflow_url")
    if position < 0:
        return table

    return table.set_column(
        position, "workflow_url", masked.take(pc.index_in(table["workflow_url"], urls))
    )


def _when(counts: ReportCounts) -> Iterator[Section]:
    """Return the section with the trend, if there are at least two failures."""
    trend, clean, markers = counts.trend, counts.clean, counts.markers
    # a single failure has no trend
    if trend.total <= 1:
        return

    options: dict[str, object] = {"by": "workflow_url", "top": 5, **zone_option()}
    if markers:
        options["markers"] = markers
    yield Section("when", "When", parts=(
        ReportFigure(
            "Failures over time", f"{counted(trend.total, 'failure')} in bars of {span(trend.step)}", 4.0,
            partial(trend_figure, trend),
        ),
        table(
            "Failures in each bar, by workflow; times are where a bar begins",
            [ReportColumn("from", "time"),
             *(ReportColumn(clean.value(name), "number") for name in trend.groups)],
            zip(clean.value(trend.starts.to_pydatetime().tolist()), *trend.counts.tolist(), strict=True),
            folded=True,
        ),
        ReportCode(_TREND.write(variable("failures"), **options)),
    ))  # fmt: skip


def _worst(counts: ReportCounts) -> Iterator[Section]:
    """Return the workflows with the most failures, and the last hours compared with the hours before."""
    recent = counts.recent
    hours, rows = int(recent.span.total_seconds() // 3600), recent.by_workflow
    if not counts.covered:
        # part of the earlier hours is not in the data, so a count of them would be too small
        rows = rows.assign(before=None)

    yield Section("worst", "Worst workflows", parts=_counts(
        counts, rows,
        f"Failures by workflow, and of the last {hours} hours against the {hours} before",
        {"workflow_url": "workflow", "count": "#failures",
         "recent": ReportColumn(f"last {hours} h", "number", missing="?"),
         "before": ReportColumn("before", "number", missing="?"), "share": _SHARE},
        fill("tk.analysis.count_workflows(failures)"), most=CAPS["worst"], more="more workflows",
    ))  # fmt: skip


def _expiry(counts: ReportCounts) -> Iterator[Section]:
    """Return the section on expiry."""
    now, kept, clean = counts.now, counts.kept, counts.clean.value
    bins = bins_of_failures(counts.failures, counts.retention, now)

    parts: list[Part] = []
    if bins.total:
        number = counted(bins.total, "failure")
        bars = enumerate(bins.counts.tolist())
        parts = [
            ReportFigure(
                "Failures by time of expiry", f"{number} that expire after {time_text(bins.now)}", 2.8,
                partial(expiry_figure, bins),
            ),
            table(
                "Failures that expire, by the time from which on",
                [ReportColumn("from", "time"), "#failures"],
                [(clean(bins.now + bar * bins.step), count) for bar, count in bars if count], folded=True,
            ),
        ]  # fmt: skip

    caption = f"Failures by time left, kept {kept} from their failure"
    if not counts.retention.is_known:
        caption = f"How long failures are kept is {counts.retention.words}: no expiry is known"
    parts.append(table(caption, ["when", "#failures"], counts.left, half=True))

    if counts.next_expiring:
        columns = [
            ReportColumn("failure", "id"),
            _WORKFLOW,
            ReportColumn("left", "hours"),
        ]
        names = ("dlq_id", "workflow_url", "hours_left")
        following = ([row[name] for name in names] for row in counts.next_expiring)
        parts.append(table("The next to expire", columns, following, half=True))

    parts.append(ReportCode(fill(_EXPIRY, kept=kept)))
    yield Section("expiry", "What expires", parts=tuple(parts))


def _where(counts: ReportCounts) -> Iterator[Section]:
    """Return the counts of failures by workflow and response status."""
    by = ["workflow_url", "response_status"]
    matrix = count_matrix(
        counts.shown, *by, top_rows=MATRIX_ROWS, top_columns=MATRIX_COLUMNS
    )
    code = fill('tk.analysis.count_by(failures, ["workflow_url", "response_status"])')
    # a single failure needs no figure
    if matrix.total > 1:
        code = fill("tk.plots.plot_failure_matrix(failures)\n\n{code}", code=code)
    parts = _counts(
        counts, count_by(counts.failures, by), "Failures by workflow and response status",
        {"workflow_url": "workflow", "response_status": ReportColumn("status", "digits"),
         "count": "#failures", "share": _SHARE},
        code, most=CAPS["workflows"],
    )  # fmt: skip

    if matrix.total > 1:
        most = counted(int(matrix.counts.max(initial=0)), "failure")
        figure = ReportFigure(
            "Failures by workflow and response status",
            f"{len(matrix.rows)} by {len(matrix.columns)} cells, the strongest with {most}",
            1.1 + _ROW * len(matrix.rows), partial(matrix_figure, matrix),
        )  # fmt: skip
        parts = (figure, *parts)

    yield Section("where", "Where it fails", parts=parts)


def _hours(counts: ReportCounts) -> Iterator[Section]:
    """Return the counts of failures by weekday and hour."""
    calendar = failure_calendar(counts.shown, gaps=gaps_of(counts.failures))
    if calendar.total <= 1:
        return

    yield Section("hours", "At which hours", parts=(
        ReportFigure(
            "Failures by weekday and hour",
            f"{counted(calendar.total, 'failure')} on seven weekdays of 24 hours", 3.2,
            partial(calendar_figure, calendar),
        ),
        table(
            f"Failures by weekday and hour ({calendar.tz})",
            [ReportColumn("hour", "digits"), *(f"#{day}" for day in WEEKDAYS)],
            ((hour, *days) for hour, days in enumerate(calendar.counts.T.tolist())), folded=True,
        ),
        ReportCode(_CALENDAR.write(variable("failures"), **zone_option())),
    ))  # fmt: skip


def _callbacks(counts: ReportCounts) -> Iterator[Section]:
    """Return the counts of failures by the state of their failure function, if the frame has this column.

    The row of failures without a failure function is always shown, even if there are many states.
    """
    if "failure_function_state" not in counts.columns:
        return

    states, most = count_states(counts.failures), CAPS["states"]
    none = states["state"].isna()
    yield Section("callbacks", "Failure functions", parts=_counts(
        counts, pd.concat([states[~none].head(most), states[none], states[~none].iloc[most:]]),
        "Failures by the state of their failure function",
        {"state": "state", "meaning": ReportColumn("meaning", below=True), "count": "#failures",
         "share": _SHARE},
        fill("tk.analysis.count_states(failures)"),
        most=min(most, int((~none).sum())) + int(none.sum()), more="more states",
    ))  # fmt: skip


def _labels(counts: ReportCounts) -> Iterator[Section]:
    """Return the counts of failures by label, if the frame has this column."""
    if "labels" not in counts.columns:
        return

    yield Section("labels", "Labels", parts=_counts(
        counts, count_labels(counts.failures), "Failures by label; one with several labels counts under each",
        {"label": "label", "count": "#failures", "share": _SHARE},
        fill("tk.analysis.count_labels(failures)"), most=CAPS["labels"], more="more labels",
    ))  # fmt: skip


def _counts(
    counts: ReportCounts,
    frame: pd.DataFrame,
    caption: str,
    columns: Mapping[str, str | ReportColumn],
    code: Code,
    *,
    most: int,
    more: str = "more rows",
) -> tuple[Part, ...]:
    """Return a table of the first rows of a frame, and the code that makes the frame."""
    rows = (
        [row[name] for name in columns] for row in counts.clean.rows(frame.head(most))
    )
    left_out = max(len(frame) - most, 0)

    return table(
        caption, columns.values(), rows, left_out=left_out, more=more
    ), ReportCode(code)


def _new(counts: ReportCounts) -> Iterator[Section]:
    """Return the failures that the earlier frame does not have, if there are any."""
    comparison = counts.findings["comparison"]
    if not comparison or not comparison["new"]:
        return

    parts: list[Part] = []
    urls = comparison["new_workflows"]
    if urls:
        parts.append(
            ReportList(
                caption="Workflows that had no failure before:", items=tuple(urls)
            )
        )

    parts.append(ReportList(
        caption=f"{counted(comparison['new'], 'failure')}, the latest first:",
        items=tuple(comparison["ids"]), ids=True, left_out=comparison["ids_left_out"],
    ))  # fmt: skip
    yield Section("new", "New compared with the earlier failures", parts=tuple(parts))


def _scope(counts: ReportCounts) -> Iterator[Section]:
    """Return the facts of the load: the request, the pages read, and how complete the result is."""
    facts, trend = counts.findings["completeness"], counts.trend
    parts: list[Part] = []
    if facts["state"] == "unknown":
        parts.append(
            ReportText("The frame has no receipt, so where it comes from is not known.")
        )
    else:
        limit: list[tuple[str, str]] = []
        if facts["limit"] is not None:
            limit = [("limit", counted(facts["limit"], "row"))]
        requests = f"{counted(facts['requests'], 'request')}, {facts['retries']:,} of them retries"
        work = f"{counted(facts['pages'], 'page')}, {requests}"
        rows = [
            ("source", facts["source"]),
            *((name, _listed(value)) for name, value in facts["scope"].items()),
            *limit,
            ("read", f"{time_text(read_time(facts['read_at']))}; {work}; {short_number(facts['bytes'])}B"),
            *(("assumes", text) for text in facts["assumptions"]),
        ]  # fmt: skip
        parts.append(
            table("What was requested, and what the load did", ["part", "value"], rows)
        )

    for number, treatment in (
        (
            trend.fell_back,
            "without a failure time, counted at creation time, which can be hours earlier",
        ),
        (trend.undated, "without a usable time, in no chart"),
    ):
        if number:
            parts.append(ReportText(f"{counted(number, 'failure')} {treatment}."))

    if facts.get("clocks"):
        columns = ["destination", "#seconds ahead", "#failures"]
        clocks = [
            (error["destination"], error["seconds_ahead"], error["rows"])
            for error in facts["clocks"]
        ]
        parts.append(
            table(
                "Clocks that are off: these failure times are estimated",
                columns,
                clocks,
            )
        )

    if counts.repeated:
        # the shown code of all other sections assumes a frame with unique ids
        parts.append(ReportCode(ONCE))

    yield Section("scope", "Scope and completeness", parts=tuple(parts))


def _code(counts: ReportCounts) -> Iterator[Section]:
    """Return the code that makes the report again."""
    yield Section(
        "code",
        "The code",
        parts=(ReportCode(Code(counts.findings["code"]), folded=False),),
    )


def _listed(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


COUNTED: Final = (_when, _worst, _expiry, _where, _hours, _callbacks, _labels)
"""Sections of a report on at least one failure."""

ABOUT: Final = (_new, _scope, _code)
"""Sections of every report."""
