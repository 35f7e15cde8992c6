"""The figures of a failure report, and its sections that count: functions of the masked findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from toolkit.analysis import CountMatrix, ExpiryBins, FailureCalendar, FailureTrend
from toolkit.analysis.over_time import WEEKDAYS
from toolkit.analysis.wording import counted, short_number, span, time_text
from toolkit.plots.cells import draw_calendar, draw_matrix
from toolkit.plots.failure_bars import draw_expiry
from toolkit.plots.failure_trend import draw_trend
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

_ROW: Final = 0.32  # inches of height of a row of cells


@dataclass(frozen=True, eq=False, kw_only=True)
class Charts:
    """The data of the charts, with texts masked."""

    trend: FailureTrend
    expiry: ExpiryBins
    matrix: CountMatrix
    calendar: FailureCalendar

    def figures(self) -> dict[str, tuple[ReportFigure, ...]]:
        """The figures by name; none where there is nothing to draw."""
        most = counted(int(self.matrix.counts.max(initial=0)), "failure")
        figures = {
            "trend": (
                self.trend.total > 1, "Failures over time",
                f"{counted(self.trend.total, 'failure')} in bars of {span(self.trend.step)}", 4.0,
                lambda ax, theme: draw_trend(self.trend, ax, theme),
            ),
            "expiry": (
                self.expiry.total > 0, "Failures by time of expiry",
                f"{counted(self.expiry.total, 'failure')} that expire after {time_text(self.expiry.now)}",
                2.8, lambda ax, theme: draw_expiry(self.expiry, ax, theme),
            ),
            "matrix": (
                self.matrix.total > 1, "Failures by workflow and response status",
                f"{len(self.matrix.rows)} by {len(self.matrix.columns)} cells, the strongest with {most}",
                1.1 + _ROW * len(self.matrix.rows),
                lambda ax, theme: draw_matrix(self.matrix, ax, theme, columns="response status"),
            ),
            "calendar": (
                self.calendar.total > 1, "Failures by weekday and hour",
                f"{counted(self.calendar.total, 'failure')} on seven weekdays of 24 hours", 3.2,
                lambda ax, theme: draw_calendar(self.calendar, ax, theme),
            ),
        }  # fmt: skip
        return {
            name: (ReportFigure(title=title, description=text, height=height, draw=draw),) if there else ()
            for name, (there, title, text, height, draw) in figures.items()
        }


Found: TypeAlias = Mapping[str, Any]
Figures: TypeAlias = Mapping[str, tuple[ReportFigure, ...]]

_COUNT: Final = ReportColumn(name="failures", kind="number")
_SHARE: Final = ReportColumn(name="share", kind="share")


def when(found: Found, figures: Figures) -> Iterator[Section]:
    """The trend."""
    if not figures["trend"]:
        return
    groups = found["trend"]["groups"]
    yield Section(name="when", title="When", parts=(
        *figures["trend"],
        table(
            "Failures in each bar, by workflow; times are where a bar begins",
            [ReportColumn(name="from", kind="time"),
             *(ReportColumn(name=one["name"], kind="number") for one in groups)],
            zip(found["trend"]["starts"], *(one["counts"] for one in groups), strict=True),
            folded=True,
        ),
        ReportCode(code=found["codes"]["trend"]),
    ))  # fmt: skip


def worst(found: Found, _: Figures) -> Iterator[Section]:
    """The workflows with the most failures, and the last hours beside those before."""
    hours, rows = found["recent"]["hours"], found["worst_workflows"]
    yield Section(name="worst", title="Worst workflows", parts=(
        table(
            f"Failures by workflow, and of the last {hours} hours against the {hours} before",
            ["workflow", _COUNT, ReportColumn(name=f"last {hours} h", kind="number"),
             ReportColumn(name="before", kind="number", missing="?"), _SHARE],
            _rows(rows["rows"], "workflow_url", "count", "recent", "before", "share"),
            left_out=rows["left_out"], more="more workflows",
        ),
        ReportCode(code=found["codes"]["worst_workflows"]),
    ))  # fmt: skip


def expiry(found: Found, figures: Figures) -> Iterator[Section]:
    """What expires when."""
    expiry = found["expiry"]
    begin, step = read_time(found["generated_at"]), timedelta(seconds=expiry["step_seconds"])
    bars = enumerate(expiry["counts"])
    counts = [((begin + number * step).isoformat(), count) for number, count in bars if count]
    parts: list[Part] = [
        *figures["expiry"],
        *([table(
            "Failures that expire, by the time from which on",
            [ReportColumn(name="from", kind="time"), _COUNT], counts, folded=True,
        )] if figures["expiry"] else []),
        table(
            f"Failures by time left, kept {expiry['retention']} from their failure",
            ["when", _COUNT],
            ((row["when"], row["count"]) for row in expiry["summary"] if row["count"]), half=True,
        ),
        *([table(
            "The next to expire",
            [ReportColumn(name="failure", kind="id"), ReportColumn(name="workflow", beneath=True),
             ReportColumn(name="left", kind="hours")],
            ((row["dlq_id"], row["workflow_url"], row["hours_left"]) for row in expiry["next"]), half=True,
        )] if expiry["next"] else []),
        ReportCode(code=found["codes"]["expiry"]),
    ]  # fmt: skip
    yield Section(name="expiry", title="What expires", parts=tuple(parts))


def where(found: Found, figures: Figures) -> Iterator[Section]:
    """Workflows by status."""
    rows = found["by_workflow"]
    drawn = f"{found['codes']['matrix']}\n\n" if figures["matrix"] else ""
    yield Section(name="where", title="Where it fails", parts=(
        *figures["matrix"],
        table(
            "Failures by workflow and response status",
            ["workflow", ReportColumn(name="status", kind="digits"), _COUNT, _SHARE],
            _rows(rows["rows"], "workflow_url", "response_status", "count", "share"),
            left_out=rows["left_out"],
        ),
        ReportCode(code=drawn + found["codes"]["by_workflow"]),
    ))  # fmt: skip


def texts(found: Found, _: Figures) -> Iterator[Section]:
    """What response bodies say most."""
    rows = found["error_texts"]
    yield Section(name="texts", title="What it says", parts=(
        table(
            "The most frequent texts in response bodies, numbers and names masked, with the latest example",
            [ReportColumn(name="new", kind="flag"), "error text", ReportColumn(name="example", beneath=True),
             ReportColumn(name="latest", kind="id", beneath=True),
             ReportColumn(name="at", kind="time", beneath=True),
             ReportColumn(name="workflows", kind="number", beneath=True), _COUNT, _SHARE],
            (
                (row["new"], row["text"], row["example"] if row["example"] != row["text"] else None,
                 row["dlq_id"], row["last_at"], row["workflows"], row["count"], row["share"])
                for row in rows["rows"]
            ),
            left_out=rows["left_out"], more="more texts",
        ),
        ReportCode(code=found["codes"]["error_texts"]),
    ))  # fmt: skip


def hours(found: Found, figures: Figures) -> Iterator[Section]:
    """Weekdays and hours."""
    if not figures["calendar"]:
        return
    yield Section(name="hours", title="At which hours", parts=(
        *figures["calendar"],
        table(
            f"Failures by weekday and hour ({found['calendar']['tz']})",
            [ReportColumn(name="hour", kind="digits"),
             *(ReportColumn(name=day, kind="number") for day in WEEKDAYS)],
            ((hour, *(day[hour] for day in found["calendar"]["counts"])) for hour in range(24)),
            folded=True,
        ),
        ReportCode(code=found["codes"]["calendar"]),
    ))  # fmt: skip


def callbacks(found: Found, _: Figures) -> Iterator[Section]:
    """Failure functions by state."""
    yield Section(name="callbacks", title="Failure functions", parts=(
        table(
            "Failures by the state of their failure function",
            ["state", ReportColumn(name="meaning", beneath=True), _COUNT, _SHARE],
            _rows(found["callbacks"], "state", "meaning", "count", "share"),
            left_out=found["callbacks_left_out"], more="more states",
        ),
        ReportCode(code=found["codes"]["callbacks"]),
    ))  # fmt: skip


def labels(found: Found, _: Figures) -> Iterator[Section]:
    """Labels."""
    rows = found["by_label"]
    yield Section(name="labels", title="Labels", parts=(
        table(
            "Failures by label; one with several labels counts under each",
            ["label", _COUNT, _SHARE],
            _rows(rows["rows"], "label", "count", "share"),
            left_out=rows["left_out"], more="more labels",
        ),
        ReportCode(code=found["codes"]["by_label"]),
    ))  # fmt: skip


def new(found: Found, _: Figures) -> Iterator[Section]:
    """What the earlier failures did not have."""
    comparison = found["comparison"]
    if not comparison or not comparison["new"]:
        return
    urls = comparison["new_workflows"]
    yield Section(name="new", title="New compared with the earlier failures", parts=(
        *([ReportList(caption="Workflows that had no failure before:", items=tuple(urls))] if urls else []),
        ReportList(
            caption=f"{counted(comparison['new'], 'failure')}, the latest first:",
            items=tuple(comparison["ids"]), ids=True, left_out=comparison["ids_left_out"],
        ),
    ))  # fmt: skip


def scope(found: Found, _: Figures) -> Iterator[Section]:
    """What was asked for, and what the load did."""
    facts, trend = found["completeness"], found["trend"]
    parts: list[Part] = []
    if facts["state"] == "unknown":
        parts.append(ReportText(text="The frame has no receipt, so where it comes from is not known."))
    else:
        limit = [] if facts["limit"] is None else [("limit", counted(facts["limit"], "row"))]
        requests = f"{counted(facts['requests'], 'request')}, {facts['retries']:,} of them retries"
        work = f"{counted(facts['pages'], 'page')}, {requests}"
        rows = [
            ("source", facts["source"]),
            *((name, _listed(value)) for name, value in facts["scope"].items()),
            *limit,
            ("read", f"{time_text(read_time(facts['read_at']))}; {work}; {short_number(facts['bytes'])}B"),
            *(("assumes", text) for text in facts["assumptions"]),
        ]  # fmt: skip
        parts.append(table("What was asked for, and what the load did", ["part", "value"], rows))
    if trend["fell_back"]:
        text = "without a failure time, counted at creation time, which can be hours earlier."
        parts.append(ReportText(text=f"{counted(trend['fell_back'], 'failure')} {text}"))
    if trend["undated"]:
        text = f"{counted(trend['undated'], 'failure')} without a usable time, in no chart."
        parts.append(ReportText(text=text))
    yield Section(name="scope", title="Scope and completeness", parts=tuple(parts))


def code(found: Found, _: Figures) -> Iterator[Section]:
    """How to make the report again."""
    yield Section(name="code", title="The code", parts=(ReportCode(code=found["code"], folded=False),))


def _rows(rows: Iterable[Found], *names: str) -> Iterator[list[Any]]:
    """These values of each row."""
    return ([row[name] for name in names] for row in rows)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


COUNTED: Final = (when, worst, expiry, where, texts, hours, callbacks, labels)
"""Sections of a report on at least one failure, in order."""

ABOUT: Final = (new, scope, code)
"""Sections of every report, at its end."""
