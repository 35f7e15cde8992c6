"""The failure report, on one page: its sections that count, their figures, and the order of all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis import (
    count_by,
    count_errors,
    count_labels,
    count_matrix,
    count_states,
    expiry_bins,
    failure_calendar,
)
from toolkit.analysis.gaps import gaps_of
from toolkit.analysis.lifetimes import times_left
from toolkit.analysis.over_time import WEEKDAYS
from toolkit.analysis.retention import retention_of
from toolkit.analysis.selection import freshness_of, select
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.analysis.wording import counted, short_number, span, time_text
from toolkit.arguments import file_path, instance, text, wrong
from toolkit.freshness import Clock
from toolkit.plots.failure_counts import draw_calendar, draw_expiry, draw_matrix
from toolkit.plots.failure_trend import draw_trend
from toolkit.plots.result_bars import draw_outcomes
from toolkit.python_code import Code, PublicCall, fill, variable
from toolkit.redaction import Redactor
from toolkit.redrive.results import STATES, RedriveResult, redrive_status
from toolkit.reports.explained_sections import Explained, explained_in_words
from toolkit.reports.findings import CAPS, ONCE, Cleaner, Counts, four_numbers, verdict, without_repeated
from toolkit.reports.page import Report
from toolkit.reports.periods import DAY
from toolkit.reports.sections import (
    Notice,
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
from toolkit.times import parse_time

_TREND: Final = PublicCall("plot_failure_trend", ("by", "top", "markers"))
_STATUS: Final = PublicCall("redrive_status", ("plan",))
_EXPIRY: Final = "tk.plot_expiry(failures, {kept})\n\ntk.count_expiring(failures, {kept})"
_SCHEMA: Final = "failure-report/5"
_ROWS: Final = 8  # workflows and statuses in the matrix
_COLUMNS: Final = 6
_ROW: Final = 0.32  # inches of height of a row of cells
_NEW_GROUPS: Final = 200  # ids of groups
_SHARE: Final = ReportColumn("share", "share")
_ORDER: Final = (
    "why", "when", "expiry", "deadline", "impact", "worst", "changed", "groups", "classes", "seen",
    "outcomes", "redrive", "actions", "where", "texts", "hours", "callbacks", "functions", "labels", "new",
    "postmortem", "scope", "code",
)  # fmt: skip
"""The names of all sections, in the order of the page."""


class FailureReport(Report):
    """A report on failures; made by `failure_report`.

    Notebooks show it as a part of their page. It holds no frame: only numbers, and texts with their secrets
    masked. ``docs/failure-report.schema.json`` describes its JSON.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import load_failures
    >>> report = failure_report(load_failures(service, limit=3, progress=False))
    >>> report.verdict[:30]
    'Incomplete: at least 3 failure'
    >>> with TemporaryDirectory() as folder:
    ...     report.save(f"{folder}/failures.md").name
    'failures.md'
    """


def failure_report(
    failures: AnyFrame,
    previous: AnyFrame | None = None,
    *,
    retention: str | timedelta | None = None,
    now: Clock = None,
    max_age: str | timedelta | None = None,
    new_since: datetime | None = None,
    title: str | None = None,
    redactor: Redactor | None = None,
    redrive: RedriveResult | str | os.PathLike[str] | None = None,
) -> FailureReport:
    """Report on failures: how many, how complete, when, where, in which words, what expires and what is new.

    The same frames, options and `now` produce the same bytes.

    Parameters
    ----------
    failures : pandas.DataFrame
        The failures table, as loaders return it; its receipt says whether it is complete.
    previous : pandas.DataFrame, optional
        An earlier one, to compare with.
    retention : str or timedelta, optional
        How long the queue keeps an entry ("3d", "7d", … by plan); entries expire that long after `failed_at`.
        Default: the environment variable ``TOOLKIT_RETENTION``, else seven days. If an older entry is in the
        queue, the report calls the retention unknown and announces no expiry.
    now : datetime or callable, optional
        What "within 24 hours" counts from; without a time zone, UTC. A callable is a clock: data from its
        future are out of date, too. Default: the clock of this machine.
    max_age : str or timedelta, optional
        How old the data may be: "2h", "1d", … The headline and a notice name the age of older ones, and
        counts of the last hours, what is new and what is worse are missing. Default: three times the usual
        time between the complete syncs of a snapshot, an hour at least, and a day without such syncs.
    new_since : datetime, optional
        Groups that were first seen after this time count as new, also if that is longer ago than a day: for
        example when you last read a report. Default: 24 hours before `now`. An earlier load to compare with
        (`previous`) decides alone.
    title : str, optional
    redactor : Redactor, optional
        Masks secrets in everything shown. Default: one with the user's key, which has no live tokens;
        loaders have masked those in the frames.
    redrive : RedriveResult or path, optional
        What `run_redrive` returned, or its ledger, of which the latest plan is shown: what succeeded, what
        came back and with which signature, what was left and why.

    Returns
    -------
    FailureReport

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import FAILURES
    >>> report = failure_report(frame_from_rows([], FAILURES), redactor=Redactor(key=b"example"))
    >>> report.verdict
    'No failures.'
    """
    redactor = Redactor() if redactor is None else instance("redactor", redactor, Redactor, "a Redactor")
    if title is not None:
        title = text("title", title)
    redriven = _redrive_of(redrive)
    fresh = freshness_of(failures, now, max_age)
    failures, repeated = without_repeated(failures, doing="making a report")
    if previous is not None:
        previous, _ = without_repeated(previous, doing="comparing failures", name="previous")
    kept = retention_of(failures, retention, fresh.now)
    counts = Counts(
        failures=failures,
        previous=previous,
        shown=_masked(failures, redactor),
        retention=kept,
        kept=retention if isinstance(retention, str) else span(kept.length).replace(" ", ""),
        fresh=fresh,
        new_since=None if new_since is None else parse_time(new_since, exact=True, name="new_since"),
        clean=Cleaner(redactor),
        repeated=repeated,
    )
    evidence, findings, clean = counts.evidence, counts.findings, counts.clean
    makers = (*(_COUNTED if counts.overview.count else ()), *_ABOUT)
    sections = [section for make in makers for section in make(counts)]
    explained = [] if redriven is None else [_redrive(redriven, redactor)]
    if evidence is not None:
        explained += Explained(evidence, counts).sections()
    sections += [section.masked(clean.value, redactor.code) for section in explained]
    facts, comparison = findings["completeness"], findings["comparison"] or {}
    notices = [Notice(facts["sentence"], good=facts["state"] == "complete")]
    if repeated:
        notices.append(Notice(f"Left out: {counted(repeated, 'row')} with the id of a later one."))
    if fresh.problem:
        notices.append(Notice(
            f"Out of date: {fresh.problem}, so what came lately, what is new and what is worse is not known. "
            "Bring the snapshot up to date, or load again."
        ))  # fmt: skip
    if (last := counts.overview.last_at) and last > fresh.now:
        notices.append(Notice(
            f"The last failure is dated {time_text(last)}, after the time of this report, "
            f"{time_text(fresh.now)}: such failures are in the totals, but in no explanation and no rate."
        ))  # fmt: skip
    notices += [Notice(comparison["caution"])] if comparison.get("caution") else []
    return FailureReport(
        schema=_SCHEMA,
        title=clean.value("Failure report" if title is None else title),
        verdict=redactor.text(verdict(findings, explained_in_words(evidence))),
        made_at=clean.value(fresh.now),
        notices=tuple(notices),
        numbers=tuple(four_numbers(findings)),
        sections=tuple(sorted(sections, key=lambda section: _ORDER.index(section.name))),
        values=findings | {"change": _change(counts)},
    )


def _change(counts: Counts) -> dict[str, Any]:
    """What is new, and whether it is worse, as JSON-able values; null where the data cannot tell."""
    evidence, clean = counts.evidence, counts.clean
    unknown: dict[str, Any] = dict.fromkeys(("since", "failures", "expected", "worse", "new_groups"))
    unknown |= {"grown_groups": [], "titles": {}}
    if evidence is None and counts.is_quiet:
        since = clean.value(counts.fresh.end - DAY)
        return unknown | {"since": since, "failures": 0, "worse": False, "new_groups": []}
    if evidence is None or not evidence.is_current:
        return unknown
    trend = evidence.trend
    new = None if trend.new is None else trend.new[:_NEW_GROUPS]
    titles = evidence.groups.set_index("group")["title"]
    return {
        "since": clean.value(trend.since),
        "failures": trend.recent,
        "expected": clean.value(trend.usual),
        "worse": trend.worse,
        "new_groups": new,
        "grown_groups": trend.grown,
        "titles": {group: clean.value(titles.get(group, group)) for group in [*(new or ()), *trend.grown]},
    }


def _masked(failures: AnyFrame, redactor: Redactor) -> SelectedRows:
    """The columns that the figures need, secrets masked: names of groups are drawn."""
    columns = ["failed_at", "created_at", "workflow_url", "response_status"]
    rows = select(failures, columns, doing="making a report")
    urls = rows.choose(["workflow_url"]).count("workflow_url")["workflow_url"].drop_null()
    masked = pa.array(map(redactor.text, urls.to_pylist()), pa.string())
    return rows.then(partial(_with_urls, urls.combine_chunks(), masked))


def _with_urls(urls: pa.Array, masked: pa.Array, table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index("workflow_url")
    if position < 0:
        return table
    return table.set_column(position, "workflow_url", masked.take(pc.index_in(table["workflow_url"], urls)))


def _when(counts: Counts) -> Iterator[Section]:
    """The trend."""
    trend, clean, markers = counts.trend, counts.clean, counts.markers
    if trend.total <= 1:
        return
    options: dict[str, object] = {"by": "workflow_url", "top": 5}
    if markers:
        options["markers"] = markers
    yield Section("when", "When", parts=(
        ReportFigure(
            "Failures over time", f"{counted(trend.total, 'failure')} in bars of {span(trend.step)}", 4.0,
            partial(draw_trend, trend),
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


def _worst(counts: Counts) -> Iterator[Section]:
    """The workflows with the most failures, and the last hours beside those before."""
    recent = counts.recent
    hours, rows = int(recent.span.total_seconds() // 3600), recent.by_workflow
    yield Section("worst", "Worst workflows", parts=_counts(
        counts, rows if counts.covered else rows.assign(before=None),
        f"Failures by workflow, and of the last {hours} hours against the {hours} before",
        {"workflow_url": "workflow", "count": "#failures",
         "recent": ReportColumn(f"last {hours} h", "number", missing="?"),
         "before": ReportColumn("before", "number", missing="?"), "share": _SHARE},
        fill("tk.count_workflows(failures)"), most=CAPS["worst"], more="more workflows",
    ))  # fmt: skip


def _expiry(counts: Counts) -> Iterator[Section]:
    """What expires when."""
    now, kept, clean = counts.now, counts.kept, counts.clean.value
    bins = expiry_bins(times_left(counts.failures, counts.retention.length, now), now)
    parts: list[Part] = []
    if bins.total:
        number = counted(bins.total, "failure")
        bars = enumerate(bins.counts.tolist())
        parts = [
            ReportFigure(
                "Failures by time of expiry", f"{number} that expire after {time_text(bins.now)}", 2.8,
                partial(draw_expiry, bins),
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
        columns = [ReportColumn("failure", "id"), _WORKFLOW, ReportColumn("left", "hours")]
        names = ("dlq_id", "workflow_url", "hours_left")
        following = ([row[name] for name in names] for row in counts.next_expiring)
        parts.append(table("The next to expire", columns, following, half=True))
    parts.append(ReportCode(fill(_EXPIRY, kept=kept)))
    yield Section("expiry", "What expires", parts=tuple(parts))


def _where(counts: Counts) -> Iterator[Section]:
    """Workflows by status."""
    by = ["workflow_url", "response_status"]
    matrix = count_matrix(counts.shown, *by, top_rows=_ROWS, top_columns=_COLUMNS)
    code = fill('tk.count_by(failures, ["workflow_url", "response_status"])')
    if matrix.total > 1:
        code = fill("tk.plot_failure_matrix(failures)\n\n{code}", code=code)
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
            1.1 + _ROW * len(matrix.rows), partial(draw_matrix, matrix, columns="response status"),
        )  # fmt: skip
        parts = (figure, *parts)
    yield Section("where", "Where it fails", parts=parts)


def _texts(counts: Counts) -> Iterator[Section]:
    """What response bodies say most."""
    clean, previous = counts.clean.redactor.text, counts.previous
    rows = count_errors(counts.failures, clean=clean)
    before = [] if previous is None else count_errors(previous, clean=clean)["text"].tolist()
    rows["new"] = None if previous is None else ~rows["text"].isin(before)
    rows["example"] = rows["example"].where(rows["example"] != rows["text"], None)
    yield Section("texts", "What it says", parts=_counts(
        counts, rows,
        "The most frequent texts in response bodies, numbers and names masked, with the latest example",
        {"new": ReportColumn("new", "flag"), "text": "error text",
         "example": ReportColumn("example", beneath=True),
         "dlq_id": ReportColumn("latest", "id", beneath=True),
         "last_at": ReportColumn("at", "time", beneath=True),
         "workflows": ReportColumn("workflows", "number", beneath=True),
         "count": "#failures", "share": _SHARE},
        fill("tk.count_errors(failures)"), most=CAPS["texts"], more="more texts",
    ))  # fmt: skip


def _hours(counts: Counts) -> Iterator[Section]:
    """Weekdays and hours."""
    calendar = failure_calendar(counts.shown, gaps=gaps_of(counts.failures))
    if calendar.total <= 1:
        return
    yield Section("hours", "At which hours", parts=(
        ReportFigure(
            "Failures by weekday and hour",
            f"{counted(calendar.total, 'failure')} on seven weekdays of 24 hours", 3.2,
            partial(draw_calendar, calendar),
        ),
        table(
            f"Failures by weekday and hour ({calendar.tz})",
            [ReportColumn("hour", "digits"), *(f"#{day}" for day in WEEKDAYS)],
            ((hour, *days) for hour, days in enumerate(calendar.counts.T.tolist())), folded=True,
        ),
        ReportCode(fill("tk.plot_failure_calendar(failures)")),
    ))  # fmt: skip


def _callbacks(counts: Counts) -> Iterator[Section]:
    """Failure functions by state; those without one are counted however many states there are."""
    states, most = count_states(counts.failures), CAPS["states"]
    none = states["state"].isna()
    yield Section("callbacks", "Failure functions", parts=_counts(
        counts, pd.concat([states[~none].head(most), states[none], states[~none].iloc[most:]]),
        "Failures by the state of their failure function",
        {"state": "state", "meaning": ReportColumn("meaning", beneath=True), "count": "#failures",
         "share": _SHARE},
        fill("tk.count_states(failures)"),
        most=min(most, int((~none).sum())) + int(none.sum()), more="more states",
    ))  # fmt: skip


def _labels(counts: Counts) -> Iterator[Section]:
    """Labels."""
    yield Section("labels", "Labels", parts=_counts(
        counts, count_labels(counts.failures), "Failures by label; one with several labels counts under each",
        {"label": "label", "count": "#failures", "share": _SHARE},
        fill("tk.count_labels(failures)"), most=CAPS["labels"], more="more labels",
    ))  # fmt: skip


def _counts(
    counts: Counts,
    frame: pd.DataFrame,
    caption: str,
    columns: Mapping[str, str | ReportColumn],
    code: Code,
    *,
    most: int,
    more: str = "more rows",
) -> tuple[Part, ...]:
    """A table of the first rows of a frame, by its columns, and the code that makes the frame."""
    rows = ([row[name] for name in columns] for row in counts.clean.rows(frame.head(most)))
    left_out = max(len(frame) - most, 0)
    return table(caption, columns.values(), rows, left_out=left_out, more=more), ReportCode(code)


def _new(counts: Counts) -> Iterator[Section]:
    """What the earlier failures did not have."""
    comparison = counts.findings["comparison"]
    if not comparison or not comparison["new"]:
        return
    urls = comparison["new_workflows"]
    yield Section("new", "New compared with the earlier failures", parts=(
        *([ReportList(caption="Workflows that had no failure before:", items=tuple(urls))] if urls else []),
        ReportList(
            caption=f"{counted(comparison['new'], 'failure')}, the latest first:",
            items=tuple(comparison["ids"]), ids=True, left_out=comparison["ids_left_out"],
        ),
    ))  # fmt: skip


def _scope(counts: Counts) -> Iterator[Section]:
    """What was requested, and what the load did."""
    facts, trend = counts.findings["completeness"], counts.trend
    parts: list[Part] = []
    if facts["state"] == "unknown":
        parts.append(ReportText("The frame has no receipt, so where it comes from is not known."))
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
    for number, said in (
        (trend.fell_back, "without a failure time, counted at creation time, which can be hours earlier"),
        (trend.undated, "without a usable time, in no chart"),
    ):
        if number:
            parts.append(ReportText(f"{counted(number, 'failure')} {said}."))
    if counts.repeated:
        parts.append(ReportCode(ONCE))
    yield Section("scope", "Scope and completeness", parts=tuple(parts))


def _code(counts: Counts) -> Iterator[Section]:
    """How to make the report again."""
    yield Section("code", "The code", parts=(ReportCode(Code(counts.findings["code"]), folded=False),))


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_COUNTED: Final = (_when, _worst, _expiry, _where, _texts, _hours, _callbacks, _labels)
"""Sections of a report on at least one failure."""

_ABOUT: Final = (_new, _scope, _code)
"""Sections of every report."""


_DONE: Final = ("succeeded", "called", "deleted")
_BACK: Final = ("failed again", "failed otherwise")
_MOST: Final = 20  # rows of a table
_DRAWN: Final = 12  # groups
_WORKFLOW: Final = ReportColumn("workflow", beneath=True)
_WHY: Final = ReportColumn("why", beneath=True, missing="")


def _redrive_of(redrive: RedriveResult | str | os.PathLike[str] | None) -> RedriveResult | None:
    """The argument ``redrive`` of a report: a result, or the latest plan of a ledger."""
    if redrive is None or isinstance(redrive, RedriveResult):
        return redrive
    if isinstance(redrive, str | os.PathLike):
        return redrive_status(file_path("redrive", redrive))
    raise wrong("redrive", redrive, "what run_redrive returns, or the path of its ledger")


def _redrive(result: RedriveResult, redactor: Redactor) -> Section:
    """The section; its texts are masked afterwards, those of its figure here."""
    result = replace(result, frame=result.frame.assign(title=result.frame["title"].map(redactor.text)))
    groups = min(int(result.frame["title"].nunique()), _DRAWN)
    figure = ReportFigure(
        "Outcomes of the redrive", result.verdict, 1.4 + 0.5 * groups, partial(draw_outcomes, result)
    )
    status = _STATUS.write("redrive.sqlite", plan=result.plan.hash[:8])
    code = fill("result = {status}\nresult.plot()", status=status)
    parts = (*([figure] if groups else []), *_tables(result.frame), ReportCode(code))
    return Section("redrive", "Redrive", result.verdict, parts)


def _tables(frame: pd.DataFrame) -> Iterator[Part]:
    done, back = frame[frame["state"].isin(_DONE)], frame[frame["state"].isin(_BACK)]
    left = frame[~frame["state"].isin((*_DONE, *_BACK))]
    action = ReportColumn("action", beneath=True)
    yield from _table("What was done", done, {"action": action, "state": "outcome"})
    same = back["new_group"].where(back["state"] != "failed again", "the same")
    yield from _table(
        "What came back, and with which signature", back.assign(came=same.fillna("not known")),
        {"reason": _WHY, "came": "signature"}, example="new_dlq_id",
    )  # fmt: skip
    yield from _table("What was left, or has not ended, and why", left, {"reason": _WHY, "state": "state"})


def _table(
    caption: str, frame: pd.DataFrame, more: Mapping[str, str | ReportColumn], *, example: str = "dlq_id"
) -> Iterator[Part]:
    """The entries of a frame counted by group, workflow and more, the most first, with one id of each."""
    if frame.empty:
        return
    columns = {"title": "group", "workflow_url": _WORKFLOW, **more}
    keys = list(columns)
    order = {state: number for number, state in enumerate(STATES)}
    counts = frame.groupby(keys, sort=False, dropna=False)[example].agg(["size", "first"]).reset_index()
    counts["order"] = counts["state"].map(order) if "state" in counts else 0
    counts = counts.sort_values(["order", "size", *keys], ascending=[True, False, *[True] * len(keys)])
    plain = counts[[*keys, "first", "size"]].astype(object)
    rows = plain.where(plain.notna(), None).head(_MOST).to_numpy().tolist()
    example_id = ReportColumn("one of them", "id", beneath=True, missing="")
    left_out = max(len(counts) - _MOST, 0)
    yield table(caption, [*columns.values(), example_id, "#entries"], rows, left_out=left_out)
