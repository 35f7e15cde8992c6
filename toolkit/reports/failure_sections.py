"""The figures of a failure report, and its sections that count, secrets masked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pandas as pd

from toolkit.analysis import (
    CountMatrix,
    ExpiryBins,
    FailureCalendar,
    FailureTrend,
    count_by,
    count_errors,
    count_labels,
    count_states,
)
from toolkit.analysis.over_time import WEEKDAYS
from toolkit.analysis.wording import counted, short_number, span, time_text
from toolkit.arguments import file_path, wrong
from toolkit.plots.failure_counts import draw_calendar, draw_expiry, draw_matrix
from toolkit.plots.failure_trend import draw_trend
from toolkit.plots.result_bars import draw_outcomes
from toolkit.redaction import Redactor
from toolkit.redrive.results import STATES, RedriveResult, redrive_status
from toolkit.reports.findings import CAPS, Counts
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

Found: TypeAlias = Mapping[str, Any]

_ROW: Final = 0.32  # inches of height of a row of cells
_COUNT: Final = ReportColumn(name="failures", kind="number")
_SHARE: Final = ReportColumn(name="share", kind="share")


@dataclass(frozen=True, eq=False, kw_only=True)
class Charts:
    """The data of the charts, with texts masked."""

    trend: FailureTrend
    expiry: ExpiryBins
    matrix: CountMatrix
    calendar: FailureCalendar
    markers: Mapping[str, str]
    """Names of times in the trend."""

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


def when(counts: Counts, charts: Charts) -> Iterator[Section]:
    """The trend."""
    trend, clean = charts.trend, counts.clean
    if not (figure := charts.figures()["trend"]):
        return
    named = f", markers={dict(charts.markers)!r}" if charts.markers else ""
    yield Section(name="when", title="When", parts=(
        *figure,
        table(
            "Failures in each bar, by workflow; times are where a bar begins",
            [ReportColumn(name="from", kind="time"),
             *(ReportColumn(name=str(clean.text(name)), kind="number") for name in trend.groups)],
            zip(clean.value(trend.starts.to_pydatetime().tolist()), *trend.counts.tolist(), strict=True),
            folded=True,
        ),
        ReportCode(code=f'tk.plot_failure_trend(failures, by="workflow_url", top=5{named})'),
    ))  # fmt: skip


def worst(counts: Counts, _: Charts) -> Iterator[Section]:
    """The workflows with the most failures, and the last hours beside those before."""
    recent = counts.recent
    hours, rows = int(recent.span.total_seconds() // 3600), recent.by_workflow
    yield Section(name="worst", title="Worst workflows", parts=_counts(
        counts, rows if counts.covered else rows.assign(before=None),
        f"Failures by workflow, and of the last {hours} hours against the {hours} before",
        {"workflow_url": "workflow", "count": _COUNT,
         "recent": ReportColumn(name=f"last {hours} h", kind="number"),
         "before": ReportColumn(name="before", kind="number", missing="?"), "share": _SHARE},
        "tk.count_workflows(failures)", most=CAPS["worst"], more="more workflows",
    ))  # fmt: skip


def expiry(counts: Counts, charts: Charts) -> Iterator[Section]:
    """What expires when."""
    bins, figure, kept = charts.expiry, charts.figures()["expiry"], counts.kept
    bars = enumerate(bins.counts.tolist())
    by_time = [(counts.clean.value(bins.now + number * bins.step), count) for number, count in bars if count]
    yield Section(name="expiry", title="What expires", parts=(
        *figure,
        *([table(
            "Failures that expire, by the time from which on",
            [ReportColumn(name="from", kind="time"), _COUNT], by_time, folded=True,
        )] if figure else []),
        table(
            f"Failures by time left, kept {kept} from their failure",
            ["when", _COUNT],
            ((row["when"], row["count"]) for row in counts.expiring if row["count"]), half=True,
        ),
        *([table(
            "The next to expire",
            [ReportColumn(name="failure", kind="id"), ReportColumn(name="workflow", beneath=True),
             ReportColumn(name="left", kind="hours")],
            ((row["dlq_id"], row["workflow_url"], row["hours_left"]) for row in counts.next_expiring),
            half=True,
        )] if counts.next_expiring else []),
        ReportCode(code=f"tk.plot_expiry(failures, {kept!r})\n\ntk.count_expiring(failures, {kept!r})"),
    ))  # fmt: skip


def where(counts: Counts, charts: Charts) -> Iterator[Section]:
    """Workflows by status."""
    figure = charts.figures()["matrix"]
    drawn = "tk.plot_failure_matrix(failures)\n\n" if figure else ""
    yield Section(name="where", title="Where it fails", parts=(*figure, *_counts(
        counts, count_by(counts.failures, ["workflow_url", "response_status"]),
        "Failures by workflow and response status",
        {"workflow_url": "workflow", "response_status": ReportColumn(name="status", kind="digits"),
         "count": _COUNT, "share": _SHARE},
        f'{drawn}tk.count_by(failures, ["workflow_url", "response_status"])', most=CAPS["workflows"],
    )))  # fmt: skip


def texts(counts: Counts, _: Charts) -> Iterator[Section]:
    """What response bodies say most."""
    clean, previous = counts.clean.redactor.text, counts.previous
    rows = count_errors(counts.failures, clean=clean)
    before = [] if previous is None else count_errors(previous, clean=clean)["text"].tolist()
    rows["new"] = None if previous is None else ~rows["text"].isin(before)
    rows["example"] = rows["example"].where(rows["example"] != rows["text"], None)
    yield Section(name="texts", title="What it says", parts=_counts(
        counts, rows,
        "The most frequent texts in response bodies, numbers and names masked, with the latest example",
        {"new": ReportColumn(name="new", kind="flag"), "text": "error text",
         "example": ReportColumn(name="example", beneath=True),
         "dlq_id": ReportColumn(name="latest", kind="id", beneath=True),
         "last_at": ReportColumn(name="at", kind="time", beneath=True),
         "workflows": ReportColumn(name="workflows", kind="number", beneath=True),
         "count": _COUNT, "share": _SHARE},
        "tk.count_errors(failures)", most=CAPS["texts"], more="more texts",
    ))  # fmt: skip


def hours(_: Counts, charts: Charts) -> Iterator[Section]:
    """Weekdays and hours."""
    if not (figure := charts.figures()["calendar"]):
        return
    yield Section(name="hours", title="At which hours", parts=(
        *figure,
        table(
            f"Failures by weekday and hour ({charts.calendar.tz})",
            [ReportColumn(name="hour", kind="digits"),
             *(ReportColumn(name=day, kind="number") for day in WEEKDAYS)],
            ((hour, *days) for hour, days in enumerate(charts.calendar.counts.T.tolist())),
            folded=True,
        ),
        ReportCode(code="tk.plot_failure_calendar(failures)"),
    ))  # fmt: skip


def callbacks(counts: Counts, _: Charts) -> Iterator[Section]:
    """Failure functions by state; those without one are counted however many states there are."""
    states, most = count_states(counts.failures), CAPS["states"]
    none = states["state"].isna()
    yield Section(name="callbacks", title="Failure functions", parts=_counts(
        counts, pd.concat([states[~none].head(most), states[none], states[~none].iloc[most:]]),
        "Failures by the state of their failure function",
        {"state": "state", "meaning": ReportColumn(name="meaning", beneath=True), "count": _COUNT,
         "share": _SHARE},
        "tk.count_states(failures)", most=min(most, int((~none).sum())) + int(none.sum()), more="more states",
    ))  # fmt: skip


def labels(counts: Counts, _: Charts) -> Iterator[Section]:
    """Labels."""
    yield Section(name="labels", title="Labels", parts=_counts(
        counts, count_labels(counts.failures), "Failures by label; one with several labels counts under each",
        {"label": "label", "count": _COUNT, "share": _SHARE},
        "tk.count_labels(failures)", most=CAPS["labels"], more="more labels",
    ))  # fmt: skip


def _counts(
    counts: Counts,
    frame: pd.DataFrame,
    caption: str,
    columns: Mapping[str, str | ReportColumn],
    code: str,
    *,
    most: int,
    more: str = "more rows",
) -> tuple[Part, ...]:
    """A table of the first rows of a frame, by its columns, and the code that makes the frame."""
    rows = ([row[name] for name in columns] for row in counts.clean.rows(frame.head(most)))
    left_out = max(len(frame) - most, 0)
    return table(caption, columns.values(), rows, left_out=left_out, more=more), ReportCode(code=code)


def new(findings: Found, _: Charts) -> Iterator[Section]:
    """What the earlier failures did not have."""
    comparison = findings["comparison"]
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


def scope(findings: Found, charts: Charts) -> Iterator[Section]:
    """What was requested, and what the load did."""
    facts, trend = findings["completeness"], charts.trend
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
        parts.append(table("What was requested, and what the load did", ["part", "value"], rows))
    if trend.fell_back:
        text = "without a failure time, counted at creation time, which can be hours earlier."
        parts.append(ReportText(text=f"{counted(trend.fell_back, 'failure')} {text}"))
    if trend.undated:
        text = f"{counted(trend.undated, 'failure')} without a usable time, in no chart."
        parts.append(ReportText(text=text))
    yield Section(name="scope", title="Scope and completeness", parts=tuple(parts))


def code(findings: Found, _: Charts) -> Iterator[Section]:
    """How to make the report again."""
    yield Section(name="code", title="The code", parts=(ReportCode(code=findings["code"], folded=False),))


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


COUNTED: Final = (when, worst, expiry, where, texts, hours, callbacks, labels)
"""Sections of a report on at least one failure, in order."""

ABOUT: Final = (new, scope, code)
"""Sections of every report, at its end."""


_DONE: Final = ("succeeded", "called", "deleted")
_BACK: Final = ("failed again", "failed otherwise")
_MOST: Final = 20  # rows of a table
_DRAWN: Final = 12  # groups
_ENTRIES: Final = ReportColumn(name="entries", kind="number")
_WORKFLOW: Final = ReportColumn(name="workflow", beneath=True)


def redrive_of(redrive: RedriveResult | str | os.PathLike[str] | None) -> RedriveResult | None:
    """The argument ``redrive`` of a report: a result, or the latest plan of a ledger."""
    if redrive is None or isinstance(redrive, RedriveResult):
        return redrive
    if isinstance(redrive, str | os.PathLike):
        return redrive_status(file_path("redrive", redrive))
    raise wrong("redrive", redrive, "what run_redrive returns, or the path of its ledger")


def redrive_section(result: RedriveResult, redactor: Redactor) -> Section:
    """The section; its texts are masked afterwards, those of its figure here."""
    result = replace(result, frame=result.frame.assign(title=result.frame["title"].map(redactor.text)))
    groups = min(int(result.frame["title"].nunique()), _DRAWN)
    figure = ReportFigure(
        title="Outcomes of the redrive", description=result.verdict, height=1.4 + 0.5 * groups,
        draw=lambda ax, theme: draw_outcomes(result, ax, theme),
    )  # fmt: skip
    code = f'result = tk.redrive_status("redrive.sqlite", plan={result.plan.hash[:8]!r})\nresult.plot()'
    parts = (*([figure] if groups else []), *_tables(result.frame), ReportCode(code=code))
    return Section(name="redrive", title="Redrive", sentence=result.verdict, parts=parts)


def _tables(frame: pd.DataFrame) -> Iterator[Part]:
    done, back = frame[frame["state"].isin(_DONE)], frame[frame["state"].isin(_BACK)]
    left = frame[~frame["state"].isin((*_DONE, *_BACK))]
    yield from _table(
        "What was done", done, ["title", "workflow_url", "action", "state"],
        ["group", _WORKFLOW, ReportColumn(name="action", beneath=True), "outcome"],
    )  # fmt: skip
    same = back["new_group"].where(back["state"] != "failed again", "the same")
    yield from _table(
        "What came back, and with which signature", back.assign(came=same.fillna("not known")),
        ["title", "workflow_url", "reason", "came"],
        ["group", _WORKFLOW, ReportColumn(name="why", beneath=True, missing=""), "signature"],
        example="new_dlq_id",
    )  # fmt: skip
    yield from _table(
        "What was left, or has not ended, and why", left, ["title", "workflow_url", "reason", "state"],
        ["group", _WORKFLOW, ReportColumn(name="why", beneath=True, missing=""), "state"],
    )  # fmt: skip


def _table(
    caption: str, frame: pd.DataFrame, keys: list[str], columns: Sequence[str | ReportColumn],
    *, example: str = "dlq_id",
) -> Iterator[Part]:  # fmt: skip
    """The entries of a frame counted by keys, the most first, with the id of one of each."""
    if frame.empty:
        return
    order = {state: number for number, state in enumerate(STATES)}
    counts = frame.groupby(keys, sort=False, dropna=False)[example].agg(["size", "first"]).reset_index()
    counts["order"] = counts["state"].map(order) if "state" in counts else 0
    counts = counts.sort_values(["order", "size", *keys], ascending=[True, False, *[True] * len(keys)])
    plain = counts[[*keys, "first", "size"]].astype(object)
    rows = plain.where(plain.notna(), None).head(_MOST).to_numpy().tolist()
    example_id = ReportColumn(name="one of them", kind="id", beneath=True, missing="")
    left_out = max(len(counts) - _MOST, 0)
    yield table(caption, [*columns, example_id, _ENTRIES], rows, left_out=left_out)
