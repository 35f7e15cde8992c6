"""The last hours against the hours before them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pandas as pd
from narwhals.typing import IntoFrame

from toolkit.analysis.columns import collect, effective_time, select, when_counted
from toolkit.times import parse_duration


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


@dataclass(frozen=True, eq=False, kw_only=True)
class RecentFailures:
    """How the last span of time compares with the one before it.

    Attributes
    ----------
    span : datetime.timedelta
        Length of both.
    failures, failures_before : int
        Failures in the last span and in the one before it.
    workflows, workflows_before : int
        Different workflow URLs among them.
    by_workflow : pandas.DataFrame
        What `count_workflows` returns.
    """

    span: timedelta
    failures: int
    failures_before: int
    workflows: int
    workflows_before: int
    by_workflow: pd.DataFrame


def recent_failures(
    failures: IntoFrame, now: datetime, *, span: timedelta = timedelta(hours=24)
) -> RecentFailures:
    """Compare the failures of the last span of time with those of the one before it.

    Times are `failed_at` and, in rows without it, `created_at`. Whether the frame holds all of the earlier
    span is for the caller to know: entries that have expired or been deleted are not in it.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `failed_at`, `created_at`.
    now : datetime
        End of the last span, with a time zone.
    span : datetime.timedelta

    Returns
    -------
    RecentFailures

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 06:00", "2026-01-02 06:00", "2026-01-02 07:00"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": "u", "failed_at": times, "created_at": times})
    >>> found = recent_failures(frame, datetime(2026, 1, 2, 12, tzinfo=UTC))
    >>> found.failures, found.failures_before
    (2, 1)
    """
    columns = ["workflow_url", "failed_at", "created_at"]
    table = collect(
        select(failures, columns, doing="comparing with the time before").with_columns(when_=effective_time())
    )
    when = pd.Series(pd.to_datetime(table["when_"].to_pandas(), utc=True))
    end = pd.Timestamp(now.astimezone(UTC))
    frame = pd.DataFrame(
        {
            "workflow_url": pd.Series(table["workflow_url"].to_pylist(), dtype="str"),
            "count": 1,
            "recent": ((when > end - span) & (when <= end)).astype("int64"),
            "before": ((when > end - 2 * span) & (when <= end - span)).astype("int64"),
        }
    )
    by_workflow = frame.groupby("workflow_url", dropna=False, as_index=False).sum()
    by_workflow = by_workflow.sort_values(
        ["count", "workflow_url"], ascending=[False, True], ignore_index=True
    )
    by_workflow.insert(2, "share", by_workflow["count"] / max(len(frame), 1))
    named = by_workflow[by_workflow["workflow_url"].notna()]
    return RecentFailures(
        span=span,
        failures=int(frame["recent"].sum()),
        failures_before=int(frame["before"].sum()),
        workflows=int((named["recent"] > 0).sum()),
        workflows_before=int((named["before"] > 0).sum()),
        by_workflow=by_workflow.astype({"count": "Int64", "recent": "Int64", "before": "Int64"}),
    )
