"""The headline numbers of a frame of failures, the last hours against those before, and what is new."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import narwhals as nw
import pandas as pd
from narwhals.typing import IntoFrame

from toolkit.analysis.counts import count_by
from toolkit.analysis.selection import (
    collect,
    collect_timed,
    effective_time,
    select,
    select_retained,
    timestamps,
    typed_frame,
    when_counted,
)
from toolkit.times import parse_duration


@dataclass(frozen=True, kw_only=True)
class FailureOverview:
    """Headline numbers of a frame of failures; times are UTC, `failed_at` or else `created_at`."""

    count: int
    workflows: int  # different workflow URLs
    runs: int  # different run ids
    first_at: datetime | None
    last_at: datetime | None
    worst_workflow: str | None  # the URL with the most failures; of equal ones the first by name
    worst_count: int
    fell_back: int  # failures without `failed_at`, counted at `created_at`
    gone: int  # failures of a snapshot that have left the queue since they were stored (`gone_before`)


def failure_overview(failures: IntoFrame) -> FailureOverview:
    """Headline numbers of a frame with `workflow_url`, `workflow_run_id`, `failed_at` and `created_at`."""
    doing = "summing up failures"
    columns = ["workflow_url", "workflow_run_id", "failed_at", "created_at"]
    row = collect(
        select(failures, columns, doing=doing)
        .with_columns(when_=effective_time(), fell_back_=nw.col("failed_at").is_null())
        .with_columns(fell_back_=(nw.col("fell_back_") & ~nw.col("when_").is_null()).cast(nw.Int64))
        .select(
            count_=nw.len(),
            runs_=nw.col("workflow_run_id").drop_nulls().n_unique(),
            first_=nw.col("when_").min(),
            last_=nw.col("when_").max(),
            fell_back_=nw.col("fell_back_").sum(),
        )
    ).to_pylist()[0]
    retained = collect(select_retained(failures, ["failed_at"], doing=doing)).num_rows
    workflows = count_by(failures, "workflow_url").dropna(subset="workflow_url")
    return FailureOverview(
        count=row["count_"],
        workflows=len(workflows),
        runs=row["runs_"],
        first_at=row["first_"],
        last_at=row["last_"],
        worst_workflow=workflows["workflow_url"].iloc[0] if len(workflows) else None,
        worst_count=int(workflows["count"].iloc[0]) if len(workflows) else 0,
        fell_back=row["fell_back_"] or 0,
        gone=row["count_"] - retained,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RecentFailures:
    """How the last span of time compares with the one before it."""

    span: timedelta  # length of both
    failures: int
    failures_before: int
    workflows: int  # different workflow URLs among them
    workflows_before: int
    by_workflow: pd.DataFrame  # what `count_workflows` returns


def recent_failures(
    failures: IntoFrame, now: datetime, *, span: timedelta = timedelta(hours=24)
) -> RecentFailures:
    """Compare the failures of the span of time that ends `now` with those of the one before it.

    Whether the frame holds all of the earlier span is for the caller to know: entries that have expired or
    been deleted are not in it.
    """
    table = collect_timed(failures, ["workflow_url"], doing="comparing with the time before")
    when, end = timestamps(table, "when_"), pd.Timestamp(now.astimezone(UTC))
    frame = typed_frame(
        workflow_url=("str", table["workflow_url"].to_pylist()),
        count=("Int64", [1] * table.num_rows),
        recent=("Int64", ((when > end - span) & (when <= end)).astype("int64")),
        before=("Int64", ((when > end - 2 * span) & (when <= end - span)).astype("int64")),
    )
    by_workflow = frame.groupby("workflow_url", dropna=False, as_index=False).sum()
    by_workflow = by_workflow.sort_values(
        ["count", "workflow_url"], ascending=[False, True], ignore_index=True
    )
    share = by_workflow["count"].astype("float64") / max(len(frame), 1)
    by_workflow.insert(2, "share", share)
    with_url = by_workflow.dropna(subset="workflow_url")
    return RecentFailures(
        span=span,
        failures=int(frame["recent"].sum()),
        failures_before=int(frame["before"].sum()),
        workflows=int((with_url["recent"] > 0).sum()),
        workflows_before=int((with_url["before"] > 0).sum()),
        by_workflow=by_workflow,
    )


def count_workflows(
    failures: IntoFrame, *, now: datetime | None = None, span: str | timedelta = "24h"
) -> pd.DataFrame:
    """Count failures by workflow: in all, in the last span of time, and in the one before it.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `failed_at`, `created_at`.
    now : datetime, optional
        End of the last span; without a time zone, UTC. Default: the clock.
    span : str or timedelta
        Length of the two spans: "24h", "7d", …

    Returns
    -------
    pandas.DataFrame
        One row a workflow, the most failures first and equal ones by name: `workflow_url` (str; missing for
        failures without one), `count` (Int64), `share` (float64, of all failures), `recent`, `before`
        (Int64: failures of the last span and of the one before it). What has expired or been deleted is not
        in the frame and so not in `before`.

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 06:00", "2026-01-02 06:00", "2026-01-02 07:00"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "failed_at": times, "created_at": times})
    >>> count_workflows(frame, now=datetime(2026, 1, 2, 12, tzinfo=UTC))
      workflow_url  count     share  recent  before
    0            a      2  0.666667       1       1
    1            b      1  0.333333       1       0
    """
    length = parse_duration(span, name="span")
    return recent_failures(failures, when_counted(now), span=length).by_workflow


@dataclass(frozen=True, kw_only=True)
class NewAndGone:
    """The difference of two frames of failures, by `dlq_id`."""

    new: tuple[str, ...]  # ids that only the later frame has, the latest failure first
    gone: tuple[str, ...]  # ids that only the earlier frame has, sorted: resumed, deleted or expired since
    new_workflows: tuple[str, ...]  # workflow URLs that only the later frame has, sorted


def new_and_gone(failures: IntoFrame, previous: IntoFrame) -> NewAndGone:
    """Compare a frame of failures with an earlier one.

    Where one of the two loads was not complete, an id can look new or missing without being so.
    """
    doing = "comparing failures"
    later = collect_timed(failures, ["dlq_id", "workflow_url"], doing=doing)
    earlier = collect(select(previous, ["dlq_id", "workflow_url"], doing=doing, name="previous"))
    known, ids = set(earlier["dlq_id"].to_pylist()), later["dlq_id"].to_pylist()
    ages = [-when.timestamp() if when else 0.0 for when in later["when_"].to_pylist()]
    new = sorted((age, found) for age, found in zip(ages, ids, strict=True) if found not in known)
    workflows = set(later["workflow_url"].to_pylist()) - set(earlier["workflow_url"].to_pylist()) - {None}
    return NewAndGone(
        new=tuple(found for _, found in new),
        gone=tuple(sorted(known - set(ids))),
        new_workflows=tuple(sorted(workflows)),
    )
