"""The few numbers that a report begins with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import narwhals as nw
from narwhals.typing import IntoFrame

from toolkit.analysis.columns import collect, effective_time, select, select_retained
from toolkit.analysis.counts import count_by


@dataclass(frozen=True, kw_only=True)
class FailureOverview:
    """Headline numbers of a frame of failures.

    Attributes
    ----------
    count : int
        Failures.
    workflows, runs : int
        Different workflow URLs and run ids.
    first_at, last_at : datetime or None
        Earliest and latest failure (`failed_at`, else `created_at`), UTC.
    worst_workflow : str or None
        The workflow URL with the most failures; of equal ones the first by name.
    worst_count : int
        Its failures.
    fell_back : int
        Failures without `failed_at`, placed at `created_at`.
    gone : int
        Failures of a snapshot that have left the queue since they were kept (`gone_before`).
    """

    count: int
    workflows: int
    runs: int
    first_at: datetime | None
    last_at: datetime | None
    worst_workflow: str | None
    worst_count: int
    fell_back: int
    gone: int


def failure_overview(failures: IntoFrame) -> FailureOverview:
    """Headline numbers of a frame of failures.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `workflow_run_id`, `failed_at`, `created_at`.

    Returns
    -------
    FailureOverview

    Examples
    --------
    >>> import pandas as pd
    >>> times = pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": ["u", "u"], "workflow_run_id": ["r", "s"], "failed_at": times,
    ...                       "created_at": times})
    >>> failure_overview(frame).worst_count
    2
    """
    columns = ["workflow_url", "workflow_run_id", "failed_at", "created_at"]
    row = collect(
        select(failures, columns, doing="summing up failures")
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
    retained = collect(select_retained(failures, ["failed_at"], doing="summing up failures")).num_rows
    by_workflow = [pair for pair in _counts(failures) if pair[0] is not None]
    worst, worst_count = by_workflow[0] if by_workflow else (None, 0)
    return FailureOverview(
        count=row["count_"],
        workflows=len(by_workflow),
        runs=row["runs_"],
        first_at=row["first_"],
        last_at=row["last_"],
        worst_workflow=worst,
        worst_count=worst_count,
        fell_back=row["fell_back_"] or 0,
        gone=row["count_"] - retained,
    )


def _counts(failures: IntoFrame) -> list[tuple[str | None, int]]:
    counted = count_by(failures, "workflow_url")
    return [
        (value if isinstance(value, str) else None, int(count))
        for value, count in zip(counted["workflow_url"], counted["count"], strict=True)
    ]
