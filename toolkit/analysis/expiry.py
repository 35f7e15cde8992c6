"""What expires when: entries leave the queue after its retention and cannot be read again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import collect, effective_time, select_retained, when_counted
from toolkit.times import parse_duration

_STEPS: Final = tuple(
    timedelta(minutes=minutes) for minutes in (15, 30, 60, 180, 360, 720, 1440, 2 * 1440, 7 * 1440)
)
_MOST_BINS: Final = 48
_LIMITS: Final = (
    ("already due", timedelta(0)),
    ("within 6 hours", timedelta(hours=6)),
    ("within 24 hours", timedelta(hours=24)),
    ("within 3 days", timedelta(days=3)),
)


def expiring(failures: IntoFrame, retention: str | timedelta, now: datetime | None = None) -> pd.DataFrame:
    """When each failure expires: `retention` after `failed_at`, or after `created_at` in rows without it.

    The service does not say which time it counts from. From `created_at` an entry can expire up to 31 hours
    earlier (with five retries) than from `failed_at`.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`. Rows of a snapshot that have
        left the queue (`gone_before`) are passed over.
    retention : str or timedelta
        How long the queue keeps an entry: "3d", "7d", … by plan.
    now : datetime, optional
        What hours are counted from; without a time zone, UTC. Default: the clock.

    Returns
    -------
    pandas.DataFrame
        One row a failure, the next to expire first: `dlq_id`, `workflow_url` (str), `expires_at`
        (datetime64[ms, UTC]; missing, and last, where no time is known), `hours_left` (float64, negative when
        already due), `basis` (str: the column counted from, missing where none).

    Raises
    ------
    InputError
        When a column is missing, or `retention` or `now` cannot be read.

    Examples
    --------
    >>> failed, never = pd.to_datetime(["2026-01-01"], utc=True), pd.to_datetime([None], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": "a", "workflow_url": "u", "failed_at": failed, "created_at": never})
    >>> expiring(frame, "7d", pd.Timestamp("2026-01-07", tz="UTC"))["hours_left"].tolist()
    [24.0]
    """
    span = parse_duration(retention, name="retention")
    columns = ["dlq_id", "workflow_url", "failed_at", "created_at"]
    table = collect(
        select_retained(failures, columns, doing="finding what expires").with_columns(
            when_=effective_time(), from_failed_=~nw.col("failed_at").is_null()
        )
    )
    when = pd.Series(pd.to_datetime(table["when_"].to_pandas(), utc=True)).astype("datetime64[ms, UTC]")
    expires = when + span
    basis = np.where(table["from_failed_"].to_pylist(), "failed_at", "created_at")
    frame = pd.DataFrame(
        {
            "dlq_id": pd.Series(table["dlq_id"].to_pylist(), dtype="str"),
            "workflow_url": pd.Series(table["workflow_url"].to_pylist(), dtype="str"),
            "expires_at": expires.astype("datetime64[ms, UTC]"),
            "hours_left": (expires - pd.Timestamp(when_counted(now))).dt.total_seconds() / 3600,
            "basis": pd.Series(basis, dtype="str").where(when.notna()),
        }
    )
    return frame.sort_values(["expires_at", "dlq_id"], na_position="last", ignore_index=True)


def count_expiring(
    failures: IntoFrame, retention: str | timedelta, now: datetime | None = None
) -> pd.DataFrame:
    """Count failures by the time left until they expire.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `workflow_url`, `failed_at`, `created_at`.
    retention : str or timedelta
        How long the queue keeps an entry: "3d", "7d", … by plan.
    now : datetime, optional
        As in `expiring`.

    Returns
    -------
    pandas.DataFrame
        `when` (str), `count` (Int64): already due, within 6 hours, 24 hours, 3 days, later, unknown. Each
        failure is counted once, in the first row that holds for it.

    Raises
    ------
    InputError
        As in `expiring`.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 00:00", "2026-01-01 12:00", None], utc=True)
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"], "workflow_url": "u", "failed_at": times})
    >>> counts = count_expiring(frame.assign(created_at=times), "7d", datetime(2026, 1, 8, 8, tzinfo=UTC))
    >>> counts[counts["count"] > 0]
                when  count
    0    already due      1
    1  within 6 hours     1
    5        unknown      1
    """
    hours = expiring(failures, retention, now)["hours_left"].to_numpy(dtype="float64", na_value=np.nan)
    known = hours[~np.isnan(hours)]
    edges = [limit.total_seconds() / 3600 for _, limit in _LIMITS]
    # right=True: an entry that expires in exactly six hours is within six hours
    places = np.bincount(np.digitize(known, edges, right=True), minlength=len(edges) + 1)
    return pd.DataFrame(
        {
            "when": pd.Series([name for name, _ in _LIMITS] + ["later", "unknown"], dtype="str"),
            "count": pd.Series([*places.tolist(), len(hours) - len(known)], dtype="Int64"),
        }
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpiryBins:
    """How many failures expire in each span of the time to come.

    Attributes
    ----------
    now : datetime.datetime
        Start of the first bin, UTC.
    step : datetime.timedelta
        Width of a bin.
    counts : numpy.ndarray
        int64, shape (bins,).
    due : int
        Failures that are due already. They are in no bin.
    unknown : int
        Failures without a time. They are in no bin.
    """

    now: datetime
    step: timedelta
    counts: NDArray[np.int64]
    due: int
    unknown: int

    @property
    def total(self) -> int:
        """Failures in all bins."""
        return int(self.counts.sum())


def expiry_bins(expiries: pd.DataFrame, now: datetime) -> ExpiryBins:
    """Count the failures that expire in each span of time from `now` on.

    Parameters
    ----------
    expiries : pandas.DataFrame
        What `expiring` returned for the same `now`.
    now : datetime
        With a time zone.

    Returns
    -------
    ExpiryBins
        At most 48 bins of a width from 15 minutes to a week (more bins where that is not enough).

    Examples
    --------
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> found = expiry_bins(pd.DataFrame({"hours_left": [-1.0, 0.1, 1.9]}), now)
    >>> found.due, found.step, found.counts.tolist()
    (1, datetime.timedelta(seconds=900), [1, 0, 0, 0, 0, 0, 0, 1])
    """
    hours = expiries["hours_left"].to_numpy(dtype="float64", na_value=np.nan)
    coming = hours[hours >= 0]
    longest = timedelta(hours=float(coming.max())) if len(coming) else timedelta(0)
    step = next((step for step in _STEPS if longest < _MOST_BINS * step), _STEPS[-1])
    places = (coming // (step.total_seconds() / 3600)).astype(np.int64)
    return ExpiryBins(
        now=now.astimezone(UTC),
        step=step,
        counts=np.bincount(places).astype(np.int64),
        due=int((hours < 0).sum()),
        unknown=int(np.isnan(hours).sum()),
    )
