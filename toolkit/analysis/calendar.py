"""At which hours of which weekdays there are failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import collect, effective_time, select
from toolkit.arguments import text, wrong
from toolkit.errors import InputError

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureCalendar:
    """Counts by weekday and hour.

    Attributes
    ----------
    counts : numpy.ndarray
        int64, shape (7, 24): Monday first, hours from midnight.
    tz : str
        Time zone of weekdays and hours.
    fell_back : int
        Rows without `failed_at`, counted at `created_at` instead.
    undated : int
        Rows without any plausible time. They are not counted.
    """

    counts: NDArray[np.int64]
    tz: str
    fell_back: int
    undated: int

    @property
    def total(self) -> int:
        """Failures counted."""
        return int(self.counts.sum())

    def to_frame(self) -> pd.DataFrame:
        """One row a weekday and hour: `weekday` (str), `hour` (Int64), `count` (Int64)."""
        return pd.DataFrame(
            {
                "weekday": pd.Series(np.repeat(np.array(WEEKDAYS, dtype=object), 24), dtype="str"),
                "hour": pd.Series(list(range(24)) * 7, dtype="Int64"),
                "count": pd.Series(self.counts.reshape(-1), dtype="Int64"),
            }
        )


def count_by_hour(failures: IntoFrame, *, tz: str = "UTC") -> pd.DataFrame:
    """Count failures by weekday and hour, on `failed_at` and, in rows without it, on `created_at`.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str
        Name of a time zone, such as ``"Europe/Istanbul"``: office hours are local.

    Returns
    -------
    pandas.DataFrame
        168 rows, one a weekday and hour, Monday at midnight first: `weekday` (str, ``"Mon"`` …), `hour`
        (Int64), `count` (Int64). Failures without a plausible time (2000 to 2099) are not counted.

    Raises
    ------
    InputError
        When a column is missing or the time zone is not known.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)  # two Mondays
    >>> counts = count_by_hour(pd.DataFrame({"failed_at": times, "created_at": times}))
    >>> counts[counts["count"] > 0]
       weekday  hour  count
    10     Mon    10      2
    """
    return failure_calendar(failures, tz=tz).to_frame()


def failure_calendar(failures: IntoFrame, *, tz: str = "UTC") -> FailureCalendar:
    """Count failures by weekday and hour, on `failed_at` and, in rows without it, on `created_at`.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str
        Name of a time zone, such as ``"Europe/Istanbul"``: office hours are local.

    Returns
    -------
    FailureCalendar

    Raises
    ------
    InputError
        When a column is missing or the time zone is not known.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)  # two Mondays
    >>> found = failure_calendar(pd.DataFrame({"failed_at": times, "created_at": times}))
    >>> int(found.counts[0, 10])
    2
    """
    doing = "counting failures by weekday and hour"
    try:
        zone = ZoneInfo(text("tz", tz, empty=False))
    except (ZoneInfoNotFoundError, UnicodeError, OSError):
        raise wrong("tz", tz, "a name such as 'Europe/Istanbul'") from None
    except ValueError as error:
        raise error if isinstance(error, InputError) else wrong("tz", tz, "a name such as 'UTC'") from None
    table = collect(
        select(failures, ["failed_at", "created_at"], doing=doing).with_columns(when_=effective_time())
    )
    when = pd.Series(pd.to_datetime(table["when_"].to_pandas(), utc=True))
    dated = when.notna()
    local = when[dated].dt.tz_convert(zone)
    counts = np.zeros((7, 24), dtype=np.int64)
    np.add.at(counts, (local.dt.day_of_week.to_numpy(), local.dt.hour.to_numpy()), 1)
    fell_back = pd.Series(table["failed_at"].to_pandas()).isna().to_numpy() & dated.to_numpy()
    return FailureCalendar(counts=counts, tz=tz, fell_back=int(fell_back.sum()), undated=int((~dated).sum()))
