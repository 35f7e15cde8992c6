"""How many failures when: counts per time bin, as a whole or by a column."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import EARLIEST, LATEST, check_scalar, collect, effective_time, named, select
from toolkit.arguments import whole
from toolkit.errors import InputError
from toolkit.times import parse_duration, parse_time

_MINUTE: Final = 60_000  # milliseconds, like every time below
_DAY: Final = 24 * 60 * _MINUTE
_STEPS: Final = tuple(
    minutes * _MINUTE for minutes in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 7 * 1440, 28 * 1440, 364 * 1440)
)
_MOST_BINS: Final = 60  # what a page's width shows as bars
_MOST_BINS_ASKED: Final = 5_000
_MONDAY: Final = 4 * _DAY  # 1970-01-05, so that weeks begin on Mondays


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureTrend:
    """Counts per time bin.

    Attributes
    ----------
    starts : pandas.DatetimeIndex
        Start of each bin, UTC, ascending, without holes.
    step : datetime.timedelta
        Width of a bin.
    groups : tuple of str
        Names of the groups, most failures first; where groups were merged, the last is ``other (n)``.
    counts : numpy.ndarray
        int64, shape (groups, bins).
    merged : int
        How many groups the last one holds; 0 when none were merged.
    fell_back : int
        Rows without `failed_at`, counted at `created_at` instead, which can be a day earlier.
    undated : int
        Rows without any plausible time (2000 to 2099). They are in no bin.
    """

    starts: pd.DatetimeIndex
    step: timedelta
    groups: tuple[str, ...]
    counts: NDArray[np.int64]
    merged: int
    fell_back: int
    undated: int

    @property
    def total(self) -> int:
        """Failures in all bins."""
        return int(self.counts.sum())

    def to_frame(self) -> pd.DataFrame:
        """One row a group and bin: `group` (str), `start` (datetime64[ms, UTC]), `count` (Int64)."""
        groups, bins = self.counts.shape
        return pd.DataFrame(
            {
                "group": pd.Series(np.repeat(np.array(self.groups, dtype=object), bins), dtype="str"),
                "start": pd.Series(list(self.starts) * groups, dtype="datetime64[ms, UTC]"),
                "count": pd.Series(self.counts.reshape(-1), dtype="Int64"),
            }
        )


def count_over_time(
    failures: IntoFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    now: datetime | None = None,
) -> pd.DataFrame:
    """Count failures per time bin, on `failed_at` and, in rows without it, on `created_at`.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to tell apart, such as `workflow_url`. Default: one group of all failures.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). Default: chosen so that there are at most 60.
        Bins lie on whole multiples of their width in UTC; weeks begin on Mondays.
    top : int
        How many groups to tell apart, at least 1; the rest is the group ``other (n)``.
    now : datetime, optional
        Bins go on to this time. Default: to the last failure.

    Returns
    -------
    pandas.DataFrame
        One row a group and bin, without holes, the largest group first: `group` (str), `start`
        (datetime64[ms, UTC]), `count` (Int64). Failures without a plausible time (2000 to 2099) are in no
        bin.

    Raises
    ------
    InputError
        When a column is missing, `freq` is no such width, or would make more than 5,000 bins.

    Examples
    --------
    >>> hours = pd.to_datetime(["2026-01-01 00:10", "2026-01-01 00:20", "2026-01-01 02:00"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": hours, "created_at": hours})
    >>> count_over_time(frame, freq="1h")["count"].tolist()
    [2, 0, 1]
    """
    return failure_trend(failures, by=by, freq=freq, top=top, now=now).to_frame()


def failure_trend(
    failures: IntoFrame,
    *,
    by: str | None = None,
    freq: str | timedelta | None = None,
    top: int = 8,
    now: datetime | None = None,
) -> FailureTrend:
    """Count failures per time bin, on `failed_at` and, in rows without it, on `created_at`.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at` and `by`.
    by : str, optional
        Column of single values to tell apart.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span, so that
        there are at most 60. Bins lie on whole multiples of their width in UTC; weeks begin on Mondays.
    top : int
        How many groups to tell apart; the rest is merged into one. At least 1.
    now : datetime, optional
        Bins go on to this time, so that quiet after the last failure is seen. Default: the last failure.

    Returns
    -------
    FailureTrend

    Raises
    ------
    InputError
        When a column is missing, `freq` is no such width, or would make more than 5,000 bins.

    Examples
    --------
    >>> import pandas as pd
    >>> hours = pd.to_datetime(["2026-01-01 00:10", "2026-01-01 00:20", None], utc=True)
    >>> frame = pd.DataFrame({"failed_at": hours, "created_at": pd.Timestamp("2026-01-01 02:00", tz="UTC")})
    >>> trend = failure_trend(frame, freq="1h")
    >>> trend.counts.tolist(), trend.fell_back
    ([[2, 0, 1]], 1)
    """
    doing = "counting failures over time"
    top = whole("top", top)
    now = None if now is None else parse_time(now, exact=True, name="now")
    wanted = None if freq is None else _width(freq)
    keys = [] if by is None else [by]
    lazy = select(failures, ["failed_at", "created_at"], doing=doing, chosen={} if by is None else {"by": by})
    check_scalar(lazy, keys, doing=doing)
    # Counting by the minute first keeps a large frame where it is; whatever the bins are, they are whole
    # minutes.
    counted = collect(
        lazy.with_columns(
            minute_=effective_time().dt.truncate("1m"), fell_back_=nw.col("failed_at").is_null()
        )
        .group_by("minute_", "fell_back_", *keys)
        .agg(nw.len().alias("count_"))
    )
    minutes = [
        None if when is None else round(when.timestamp()) * 1000 for when in counted["minute_"].to_pylist()
    ]
    fell_back = counted["fell_back_"].to_pylist()
    values = [named(value) for value in counted[by].to_pylist()] if by else ["failures"] * len(minutes)
    rows = list(zip(minutes, values, counted["count_"].to_pylist(), fell_back, strict=True))
    dated = [(minute, value, count) for minute, value, count, _ in rows if minute is not None]

    groups, merged = _largest(dated, top)
    starts, width = _bins([minute for minute, _, _ in dated], wanted, now, doing)
    counts = np.zeros((len(groups), len(starts)), dtype=np.int64)
    place = {name: number for number, name in enumerate(groups[: len(groups) - bool(merged)])}
    for minute, value, count in dated:
        counts[place.get(value, len(groups) - 1), (minute - starts[0]) // width] += count
    return FailureTrend(
        starts=pd.DatetimeIndex(pd.to_datetime(starts, unit="ms", utc=True).as_unit("ms")),
        step=timedelta(milliseconds=width),
        groups=groups,
        counts=counts,
        merged=merged,
        fell_back=sum(count for minute, _, count, fell in rows if fell and minute is not None),
        undated=sum(count for minute, _, count, _ in rows if minute is None),
    )


def readable_top(heights: NDArray[Any]) -> float:
    """Where an axis of bars should end: above the tallest, or above all others that a burst would flatten.

    The axis is cut where a twentieth of the bars, at least one, is more than five times as tall as the rest.

    >>> readable_top(np.array([3, 5, 4, 2, 400])), readable_top(np.array([3, 5, 4, 2, 9]))
    (6.25, 9.0)
    """
    tall = np.sort(heights[heights > 0])
    few = max(1, len(tall) // 20)
    if len(tall) > 3 * few and tall[-1] > 5 * tall[-few - 1]:
        return float(tall[-few - 1] * 1.25)
    return float(tall[-1]) if len(tall) else 1.0


def _largest(dated: list[tuple[int, str, int]], top: int) -> tuple[tuple[str, ...], int]:
    totals: Counter[str] = Counter()
    for _, value, count in dated:
        totals[value] += count
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    if len(ordered) <= top:
        return tuple(ordered), 0
    merged = len(ordered) - top
    return (*ordered[:top], f"other ({merged})"), merged


def _width(freq: str | timedelta) -> int:
    width = round(parse_duration(freq, name="freq").total_seconds() * 1000)
    if width % _MINUTE:
        raise InputError("reading freq", got=repr(freq), expected="a duration of whole minutes")
    return width


def _bins(
    minutes: list[int], wanted: int | None, now: datetime | None, doing: str
) -> tuple[NDArray[np.int64], int]:
    if not minutes:
        return np.zeros(0, dtype=np.int64), wanted or _STEPS[0]
    first, last = min(minutes), max(minutes)
    if now is not None and EARLIEST <= now.astimezone(UTC) < LATEST:
        last = max(last, round(now.timestamp() * 1000))
    width = wanted or next(
        (step for step in _STEPS if _floor(last, step) - _floor(first, step) < _MOST_BINS * step), _STEPS[-1]
    )
    low, high = _floor(first, width), _floor(last, width)
    count = (high - low) // width + 1
    if count > _MOST_BINS_ASKED:
        raise InputError(
            doing,
            got=f"{count:,} bins between the first failure and the last",
            expected=f"at most {_MOST_BINS_ASKED:,}",
            next_step="Use a wider freq, or a shorter span of the frame.",
        )
    return low + width * np.arange(count, dtype=np.int64), width


def _floor(moment: int, width: int) -> int:
    offset = _MONDAY if width % (7 * _DAY) == 0 else 0
    return (moment - offset) // width * width + offset
