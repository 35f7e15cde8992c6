"""Summarise a frame of failures: totals, recent hours compared with earlier ones, new and gone entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.time_zones import span_of_times, time_text
from toolkit.base.times import parse_duration
from toolkit.drawing.wording import counted
from toolkit.failures.clocks import clock_errors
from toolkit.failures.partial_results import (
    Counts,
    DistinctValues,
    repeated_rows,
)
from toolkit.failures.run_log import summarize_runs
from toolkit.failures.selection import (
    freshness_of,
    opened,
    receipt_of,
    scanned,
    select,
    select_retained,
    select_timed,
    typed_frame,
)
from toolkit.failures.sources import AnyFrame, Request, reduce_together
from toolkit.failures.sql_results import SqlStep
from toolkit.secrets.redaction import visible
from toolkit.tables.freshness import Clock, facts_of_age
from toolkit.tables.receipt import Receipt, clock_sentence, facts_html

_FEW: Final = 3  # ids that are shown
_Summed = tuple[int, list[tuple[str, str]]]  # rows; names and values of lines


@dataclass(frozen=True, kw_only=True)
class FailureOverview:
    """Totals of a frame of failures; times are UTC, of `failed_at`, or of `created_at` if that is missing."""

    count: int
    workflows: int  # different workflow URLs
    runs: int  # different run ids
    first_at: datetime | None
    last_at: datetime | None
    # the URL with the most failures; of equal ones the first by name
    worst_workflow: str | None
    worst_count: int
    fell_back: int  # failures without `failed_at`, counted at `created_at`
    gone: int  # failures of a snapshot that have left the queue since they were stored (`gone_before`)
    repeated: int  # rows with the `dlq_id` of an earlier row; 0 without that column


def failure_overview(failures: AnyFrame) -> FailureOverview:
    """Return the totals of a frame of failures.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `workflow_run_id`, `failed_at` and `created_at`; with `dlq_id`, rows
        that repeat one are counted.

    Returns
    -------
    FailureOverview

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> overview = failure_overview(tk.load_failures(service, progress=False))
    >>> overview.count, overview.gone
    (5000, 0)
    """
    doing = "summing up failures"
    rows = opened(failures, doing=doing)
    timed = select_timed(rows, ["workflow_url", "workflow_run_id"], doing=doing)
    aggregates = {
        "first": ("when_", "min"),
        "last": ("when_", "max"),
        "fell_back": ("fell_back_", "sum"),
    }
    retained = select_retained(rows, ["workflow_url"], doing=doing)
    requests: list[Request] = [
        (timed, Counts((), tuple(aggregates.items()))),
        (timed, DistinctValues("workflow_run_id")),
        (select(rows, ["workflow_url"], doing=doing), Counts(("workflow_url",))),
        (retained, Counts(())),
    ]
    if "dlq_id" in rows.names and not rows.has_unique_ids:
        ids = select(rows, ["dlq_id"], doing=doing)
        requests.append((ids, DistinctValues("dlq_id")))

    totals, runs, by_workflow, still_there, *found_ids = reduce_together(requests)
    row = totals.to_pylist()[0]
    retained_count = still_there["count_"][0].as_py()
    workflows = by_workflow.filter(by_workflow["workflow_url"].is_valid())
    workflows = workflows.sort_by(
        [("count_", "descending"), ("workflow_url", "ascending")]
    )
    worst_workflow, worst_count = None, 0
    if len(workflows):
        worst_workflow = workflows["workflow_url"][0].as_py()
        worst_count = workflows["count_"][0].as_py()

    return FailureOverview(
        count=row["count_"],
        workflows=len(workflows),
        runs=runs["distinct"][0].as_py(),
        first_at=row["first"],
        last_at=row["last"],
        worst_workflow=worst_workflow,
        worst_count=worst_count,
        fell_back=row["fell_back"] or 0,
        gone=row["count_"] - retained_count,
        repeated=sum(repeated_rows(found) for found in found_ids),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RecentFailures:
    """Failures of the last span of time, and of an equal span before it.

    Numbers are None if the data are too old.
    """

    span: timedelta  # length of both spans
    until: (
        datetime  # end of the last span: now, or the end of the data if that is earlier
    )
    failures: int | None
    failures_before: int | None
    workflows: int | None  # different workflow URLs among them
    workflows_before: int | None
    by_workflow: pd.DataFrame  # as `count_workflows` returns it


def recent_failures(
    failures: AnyFrame,
    now: Clock,
    *,
    span: str | timedelta = "24h",
    max_age: str | timedelta | None = None,
) -> RecentFailures:
    """Compare the failures of the span of time that ends `now` with the failures of the span before it.

    Entries that have expired or were deleted are not in the frame, and so not in the earlier span. If the
    data end a little earlier than `now`, for example at the latest sync of a snapshot, the spans end there.
    If the data are older than `max_age`, the numbers are missing.

    Parameters
    ----------
    failures
        As in `count_workflows`.
    now : datetime or callable
        End of the later span; without a time zone, UTC. A callable is a clock, and None the clock of this
        machine.
    span : str or timedelta
        Length of each span: "24h", "7d", …
    max_age : str or timedelta, optional
        How old the data may be. If omitted, three times the usual time between the complete syncs of a
        snapshot (at least an hour), or a day if it has no syncs.

    Returns
    -------
    RecentFailures

    Raises
    ------
    InputError
        If a column is missing, or an option cannot be read.

    Examples
    --------
    >>> failures = tk.load_failures(service, progress=False)
    >>> recent = recent_failures(failures, pd.Timestamp.now("UTC"), span="365d")
    >>> recent.failures, recent.failures_before
    (5000, 0)
    """
    length = parse_duration(span, name="span")
    data_age = freshness_of(failures, now, max_age)
    end = data_age.end
    rows = select_timed(
        failures, ["workflow_url"], doing="comparing with the time before"
    )
    rows = rows.then(partial(_with_spans, end, length))
    table = rows.count(
        "workflow_url", recent=("recent", "sum"), before=("before", "sum")
    )
    table = table.sort_by([("count_", "descending"), ("workflow_url", "ascending")])
    counts = table["count_"].to_pylist()
    by_workflow = typed_frame(
        workflow_url=("str", table["workflow_url"].to_pylist()),
        count=("Int64", counts),
        share=("float64", [count / sum(counts) for count in counts]),
        recent=("Int64", table["recent"].to_pylist()),
        before=("Int64", table["before"].to_pylist()),
    )

    if not data_age.is_current:
        unknown = by_workflow.assign(
            recent=_unknown(by_workflow), before=_unknown(by_workflow)
        )
        return RecentFailures(
            span=length,
            until=end,
            failures=None,
            failures_before=None,
            workflows=None,
            workflows_before=None,
            by_workflow=unknown,
        )

    with_url = by_workflow.dropna(subset="workflow_url")
    return RecentFailures(
        span=length,
        until=end,
        failures=int(by_workflow["recent"].sum()),
        failures_before=int(by_workflow["before"].sum()),
        workflows=int((with_url["recent"] > 0).sum()),
        workflows_before=int((with_url["before"] > 0).sum()),
        by_workflow=by_workflow,
    )


def _unknown(frame: pd.DataFrame) -> pd.Series[Any]:
    """Return a column of missing counts."""
    return pd.Series(pd.NA, index=frame.index, dtype="Int64")


def _with_spans(end: datetime, span: timedelta, table: pa.Table) -> pa.Table:
    """Add the columns `recent` and `before`: 1 for failures of the last span, or of the span before it."""
    when = table["when_"].cast(pa.timestamp("us", "UTC"), safe=False)
    for name, last in (("recent", end), ("before", end - span)):
        first = pc.greater(when, pa.scalar(last - span, when.type))
        within = pc.and_(first, pc.less_equal(when, pa.scalar(last, when.type)))
        table = table.append_column(name, pc.fill_null(within, False).cast(pa.int64()))

    return table


def count_workflows(
    failures: AnyFrame,
    *,
    now: Clock = None,
    span: str | timedelta = "24h",
    max_age: str | timedelta | None = None,
) -> pd.DataFrame:
    """Count failures by workflow: all, in the last span of time, and in the span before it.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `failed_at`, `created_at`.
    now : datetime or callable, optional
        End of the last span; without a time zone, UTC. A callable is a clock. If omitted, the current time.
    span : str or timedelta
        Length of the two spans: "24h", "7d", …
    max_age : str or timedelta, optional
        As in `report_failures`: `recent` and `before` are missing if the data are older.

    Returns
    -------
    pandas.DataFrame
        One row per workflow, the most failures first and equal ones by name: `workflow_url` (str; missing for
        failures without a workflow), `count` (Int64), `share` (float64, of all failures), `recent`, `before`
        (Int64: failures of the last span and of the span before it). Entries that have expired or were
        deleted are not in the frame and so not in `before`.

    Raises
    ------
    InputError
        If a column is missing, or an option cannot be read.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 06:00", "2026-01-02 06:00", "2026-01-02 07:00"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "failed_at": times, "created_at": times})
    >>> count_workflows(frame, now=datetime(2026, 1, 2, 12))
      workflow_url  count     share  recent  before
    0            a      2  0.666667       1       1
    1            b      1  0.333333       1       0
    """
    return recent_failures(failures, now, span=span, max_age=max_age).by_workflow


@dataclass(frozen=True, kw_only=True, repr=False)
class NewAndGone:
    """The difference of two frames of failures, by `dlq_id`."""

    new: tuple[str, ...]  # ids that only the later frame has, the latest failure first
    # ids of the queue of the earlier frame only, sorted: resumed, deleted or expired
    gone: tuple[str, ...]
    # workflow URLs that only the later frame has, sorted
    new_workflows: tuple[str, ...]

    def __repr__(self) -> str:
        return "; ".join(
            f"{name.replace('_', ' ')}: {_some(ids)}"
            for name, ids in vars(self).items()
        )


def _some(ids: tuple[str, ...]) -> str:
    """Return the number of ids with the first few, for example "12 (a, b, c, …)"."""
    if not ids:
        return "0"

    shown = list(map(visible, ids[:_FEW]))
    if len(ids) > _FEW:
        shown.append("…")
    return f"{len(ids):,} ({', '.join(shown)})"


def new_and_gone(before: AnyFrame, after: AnyFrame) -> NewAndGone:
    """Compare two frames of failures, by id and workflow.

    If a load was not complete, an id can look new or gone without being so. Rows without an id are ignored.
    Rows of a snapshot with `gone_before` have left the queue: they can be new, and they are gone if the
    earlier frame still has them.

    Parameters
    ----------
    before, after : frame
        The earlier and the later failures, with the columns `dlq_id` and `workflow_url`; the later ones also
        with `failed_at` and `created_at`.

    Returns
    -------
    NewAndGone

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=250)
    >>> new_and_gone(failures[10:], failures)
    new: 10 (..., …); gone: 0; new workflows: 0
    """
    doing = "comparing failures"
    columns = ["dlq_id", "workflow_url"]
    later = select_timed(after, columns, doing=doing, name="after").whole_table(doing)
    earlier = select(before, columns, doing=doing, name="before").whole_table(doing)
    known = {None, *earlier["dlq_id"].to_pylist()}
    ages = [-when.timestamp() if when else 0.0 for when in later["when_"].to_pylist()]
    by_age = sorted(
        zip(ages, later["dlq_id"].to_pylist(), strict=True), key=_age_and_id
    )
    workflows = (
        set(later["workflow_url"].to_pylist())
        - set(earlier["workflow_url"].to_pylist())
        - {None}
    )

    return NewAndGone(
        new=tuple(dlq_id for _, dlq_id in by_age if dlq_id not in known),
        gone=tuple(sorted(_queue(before) - _queue(after))),
        new_workflows=tuple(sorted(workflows)),
    )


def _age_and_id(pair: tuple[float, str | None]) -> tuple[float, str]:
    age, dlq_id = pair
    return age, dlq_id or ""


def _queue(failures: AnyFrame) -> set[str]:
    """Return the ids of the entries that are in the queue."""
    table = select_retained(failures, ["dlq_id"], doing="comparing failures").table()
    return set(table["dlq_id"].to_pylist()) - {None}


@dataclass(frozen=True, kw_only=True)
class FrameSummary:
    """The contents of a frame in a few lines; made by `summarize`.

    Attributes
    ----------
    what : str
        ``"failures"``, ``"vectors"``, ``"hits"``, or the kind in the receipt.
    rows : int
    lines : tuple of (str, str)
        Names and values, as they are shown.
    complete : bool or None
        From the receipt; None without a receipt, or if the frame has other rows than were loaded.

    Examples
    --------
    >>> from toolkit import load_failures, summarize
    >>> found = summarize(load_failures(service, progress=False))
    >>> found.what, found.rows, found.complete
    ('failures', 5000, True)
    """

    what: str
    rows: int
    lines: tuple[tuple[str, str], ...]
    complete: bool | None

    def __repr__(self) -> str:
        width = max((len(name) for name, _ in self.lines), default=0)
        return visible(
            "\n".join(f"{name:<{width}}  {text}" for name, text in self.lines)
        )

    def _repr_html_(self) -> str:
        return facts_html(self.what, self.lines)


def summarize(frame: AnyFrame) -> FrameSummary:
    """Summarise a frame in a few lines: rows, time or namespaces, and completeness.

    Parameters
    ----------
    frame : frame
        Made by a loader, or derived from a loaded frame. Without a receipt, it is not known whether the frame
        is complete.

    Returns
    -------
    FrameSummary
        Notebooks show it as a small table.

    Raises
    ------
    InputError
        If it is not a frame.

    Examples
    --------
    >>> summarize(tk.load_failures(service, progress=False))
    rows       5,000 failures in 11 workflows
    time       ... to ... UTC
    placed by  created_at in 431 rows without a failure time
    complete   yes
    """
    doing = "summing up a frame"
    frame = scanned(frame, doing=doing, name="frame")
    names = opened(frame, doing=doing, name="frame").names
    receipt, gone = receipt_of(frame), 0

    if {"dlq_id", "failed_at", "workflow_run_id"} <= set(names):
        overview = failure_overview(frame)
        what, rows, gone, lines = (
            "failures",
            overview.count,
            overview.gone,
            _failures(overview),
        )
        if sentence := clock_sentence(clock_errors(frame)):
            lines.append(("estimated", sentence))
    elif {"namespace", "vector_problem"} <= set(names):
        what, rows, lines = "vectors", *_vectors(frame)
    elif {"query", "rank", "score"} <= set(names):
        what, rows, lines = "hits", *_hits(frame)
    elif {
        "workflow_run_id",
        "state",
        "workflow_url",
        "created_at",
        "completed_at",
    } <= set(names):
        summed = summarize_runs(frame)
        what, rows = "runs", int(summed.frame["runs"].sum())
        runs, _, outcomes = summed.verdict.partition(": ")
        lines = [("rows", runs), ("outcomes", outcomes)]
    else:
        what = receipt.what if receipt else "rows"
        rows = select(frame, names[:1], doing=doing).count()["count_"][0].as_py()
        lines = [("rows", f"{rows:,} of {counted(len(names), 'column')}")]

    if receipt is not None and receipt.syncs is not None:
        lines += facts_of_age(freshness_of(frame)).items()
    lines.append(("complete", completeness(receipt, rows - gone)))

    return FrameSummary(
        what=what,
        rows=rows,
        lines=tuple((name, visible(text)) for name, text in lines),
        complete=receipt.complete if receipt and receipt.rows == rows - gone else None,
    )


def completeness(receipt: Receipt | None, rows: int) -> str:
    """Return whether a load was complete, or the part of the load that a frame with some rows has."""
    if receipt is None:
        return "not known: the frame has no receipt"

    part = f"{replace(receipt, frame_rows=rows).part} of the load"
    is_whole = receipt.rows == rows
    if receipt.complete and is_whole:
        return "yes"
    if receipt.complete:
        return f"{part}, which was complete"

    reasons = "; ".join(receipt.reasons) or "it did not end"
    if is_whole:
        return f"no: {reasons}"

    return f"{part}, which was not complete: {reasons}"


def _failures(overview: FailureOverview) -> list[tuple[str, str]]:
    rows = counted(overview.count, "failure")
    if overview.workflows:  # plain messages belong to no workflow
        rows += f" in {counted(overview.workflows, 'workflow')}"
    lines = [("rows", rows)]

    if overview.first_at and overview.last_at:
        start, last = span_of_times(overview.first_at, overview.last_at)
        first = time_text(overview.first_at)
        lines.append(("time", first if first == last else f"{start} to {last}"))

    if overview.fell_back:
        lines.append(
            (
                "placed by",
                f"created_at in {overview.fell_back:,} rows without a failure time",
            )
        )

    if overview.gone:
        lines.append(
            ("gone", f"{overview.gone:,} have left the queue since they were stored")
        )

    if overview.repeated:
        rows = "row repeats" if overview.repeated == 1 else "rows repeat"
        advice = f'{overview.repeated:,} {rows} a dlq_id: drop_duplicates("dlq_id") counts each entry once'
        lines.append(("repeated", advice))

    return lines


def _vectors(frame: AnyFrame) -> _Summed:
    doing = "summing up vectors"
    columns = ["namespace", "vector_problem"]
    rows = select(frame, columns, doing=doing, name="frame").then(_with_problem)
    spaces = rows.count("namespace", "has_problem_").to_pandas()
    total = int(spaces["count_"].sum())
    in_spaces = counted(spaces["namespace"].nunique(dropna=False), "namespace")
    lines = [("rows", f"{counted(total, 'vector')} in {in_spaces}")]
    # the type of the column has the number of dimensions, so that no vector is read
    vectors = select(frame, ["vector"], doing=doing, name="frame")
    kind = vectors.schema.field("vector").type
    if pa.types.is_fixed_size_list(kind):
        lines.append(("dimension", f"{kind.list_size:,}"))
    problems = int(spaces["count_"][spaces["has_problem_"].astype(bool)].sum())
    if problems:
        lines.append(("not usable", f"{problems:,}; see vector_problem"))

    return total, lines


def _problem_marked(table: pa.Table) -> pa.Table:
    return table.append_column("has_problem_", table["vector_problem"].is_valid())


_with_problem: Final = SqlStep(
    _problem_marked,
    "(SELECT *, vector_problem IS NOT NULL AS has_problem_ FROM {rows})",
)
"""Adds `has_problem_`: whether a vector cannot be used."""


def _hits(frame: AnyFrame) -> _Summed:
    doing = "summing up hits"
    table = select(frame, ["query", "score"], doing=doing).whole_table(doing)
    queries = len(table["query"].unique())
    of_queries = "1 query" if queries == 1 else f"{queries:,} queries"
    lines = [("rows", f"{counted(table.num_rows, 'hit')} of {of_queries}")]
    if table["score"].null_count < table.num_rows:
        span = pc.min_max(table["score"]).as_py()
        lines.append(("scores", f"{span['min']:.3g} to {span['max']:.3g}"))

    return table.num_rows, lines
