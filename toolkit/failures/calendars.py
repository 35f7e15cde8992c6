"""Count failures by weekday and hour of a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.base.time_zones import time_zone
from toolkit.failures.gaps import Spans, gaps_of
from toolkit.failures.over_time import by_minute
from toolkit.failures.selection import Counted, select_timed, typed_frame
from toolkit.failures.sources import AnyFrame

_QUARTER_HOUR: Final = timedelta(minutes=15)
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureCalendar(Counted):
    """Counts by weekday and hour."""

    counts: NDArray[np.int64]  # shape (7, 24): Monday first, hours from midnight
    # shape (7, 24): whether such an hour lies in a gap, if only once and in part
    in_gap: NDArray[np.bool_]
    tz: str  # time zone of weekdays and hours
    fell_back: int  # rows without `failed_at`, counted at `created_at` instead
    undated: int  # rows without any plausible time, which are not counted

    def to_frame(self) -> pd.DataFrame:
        """Return a row per weekday and hour: `weekday` (str), `hour`, `count` (Int64), `in_gap` (boolean)."""
        return typed_frame(
            weekday=("str", np.repeat(np.array(WEEKDAYS, dtype=object), 24)),
            hour=("Int64", list(range(24)) * 7),
            count=("Int64", self.counts.reshape(-1)),
            in_gap=("boolean", self.in_gap.reshape(-1)),
        )


def count_by_hour(
    failures: AnyFrame, *, tz: str | tzinfo | None = None
) -> pd.DataFrame:
    """Count failures by weekday and hour of `failed_at`, or of `created_at` if that is missing.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str or tzinfo, optional
        A time zone or the name of a time zone, for example ``"Europe/Istanbul"``: office hours are local. A
        zone without a name, for example a fixed offset, cannot be used. If omitted, ``TOOLKIT_TZ``, or UTC.

    Returns
    -------
    pandas.DataFrame
        168 rows, one per weekday and hour, Monday at midnight first: `weekday` (str, ``"Mon"`` …), `hour`
        (Int64), `count` (Int64), `in_gap` (boolean: failures of this hour may be missing, as they expired
        between two syncs of the snapshot; exclude these rows if you compare hours). Failures without a
        plausible time (2000 to 2099) are not counted.

    Raises
    ------
    InputError
        If a column is missing or the time zone is unknown.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)  # two Mondays
    >>> counts = count_by_hour(pd.DataFrame({"failed_at": times, "created_at": times}))
    >>> counts[counts["count"] > 0]
       weekday  hour  count  in_gap
    10     Mon    10      2   False
    """
    return failure_calendar(failures, tz=tz).to_frame()


def failure_calendar(
    failures: AnyFrame, *, tz: str | tzinfo | None = None, gaps: Spans | None = None
) -> FailureCalendar:
    """Count failures by weekday and hour, as a matrix.

    Parameters
    ----------
    failures, tz
        As in `count_by_hour`.
    gaps : tuple of pairs of datetime, optional
        Spans of time with missing failures. If omitted, the gaps of the snapshot of these failures.

    Returns
    -------
    FailureCalendar

    Raises
    ------
    InputError
        As in `count_by_hour`.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 12:30"], utc=True)
    >>> failure_calendar(pd.DataFrame({"failed_at": times, "created_at": times})).counts[3, [10, 12]]
    array([1, 1])
    """
    doing = "counting failures by weekday and hour"
    zone = time_zone(tz)
    counted, rows, dated, minutes = by_minute(select_timed(failures, [], doing=doing))
    local = pd.DatetimeIndex(pd.to_datetime(minutes, unit="ms", utc=True)).tz_convert(
        zone
    )
    counts = np.zeros((7, 24), dtype=np.int64)
    # `add.at` adds to a cell as often as it occurs; `counts[...] += ...` would do it once.
    np.add.at(counts, (local.day_of_week, local.hour), rows[dated])

    return FailureCalendar(
        counts=counts,
        in_gap=_hours_in(gaps_of(failures) if gaps is None else gaps, zone),
        tz=zone.key,
        fell_back=int(rows[counted["fell_back_"].to_numpy()].sum()),
        undated=int(rows[~dated].sum()),
    )


def _hours_in(gaps: Spans, zone: ZoneInfo) -> NDArray[np.bool_]:
    """Return which hours of which weekdays overlap with gaps."""
    in_gap = np.zeros((7, 24), dtype=bool)
    for start, end in gaps:
        # a week has every hour; a quarter of one is the finest offset of a time zone
        last = max(
            start, min(end - timedelta(milliseconds=1), start + timedelta(days=7))
        )
        times = pd.DatetimeIndex(
            [*pd.date_range(start, last, freq=_QUARTER_HOUR), last]
        )
        local = times.tz_convert(zone)
        in_gap[local.day_of_week, local.hour] = True

    return in_gap
