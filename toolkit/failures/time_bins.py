"""Cut time into bins: choose a width, and the start of each bin.

Bins of whole days begin at local midnight. In Berlin, 29 March 2026 has 23 hours, as clocks are put forward:

>>> hour = 3_600_000
>>> morning = np.array([1_774_739_400_000, 1_774_868_400_000])  # 28 March 23:10 UTC, 30 March 11:00 UTC
>>> starts, _ = bins_of(morning, 24 * hour, None, "counting", ZoneInfo("Europe/Berlin"))
>>> (np.diff(starts) // hour).tolist(), bin_numbers(morning, starts).tolist()
([23], [0, 1])

Narrower bins have equal widths, counted from midnight of the first day: an hour is an hour also when clocks
are changed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.base.errors import InputError
from toolkit.base.times import DAY_MS, parse_duration
from toolkit.failures.selection import EARLIEST, LATEST

MINUTE: Final = 60_000
"""Milliseconds, like every time below."""

_STEPS: Final = tuple(
    minutes * MINUTE
    for minutes in (
        1,
        5,
        15,
        30,
        60,
        180,
        360,
        720,
        1440,
        7 * 1440,
        28 * 1440,
        364 * 1440,
    )
)
_MOST_BINS: Final = 60  # bars that fit the width of a page
_MOST_BINS_REQUESTED: Final = 5_000
_MONDAY: Final = 4 * DAY_MS  # 1970-01-05, so that weeks begin on Mondays
_UTC: Final = ZoneInfo("UTC")


def bin_width(freq: str | timedelta) -> int:
    """Return the milliseconds of a bin."""
    width = round(parse_duration(freq, name="freq").total_seconds() * 1000)
    if width % MINUTE:
        raise InputError(
            "reading freq", got=repr(freq), expected="a duration of whole minutes"
        )

    return width


def bins_of(
    minutes: NDArray[np.int64],
    wanted: int | None,
    now: datetime | None,
    doing: str,
    zone: ZoneInfo = _UTC,
) -> tuple[NDArray[np.int64], int]:
    """Return the start of each bin, and the width, which is chosen for at most 60 bins if not wanted."""
    if not len(minutes):
        return np.zeros(0, dtype=np.int64), wanted or _STEPS[0]

    first, last = int(minutes.min()), int(minutes.max())
    if now is not None and EARLIEST <= now.astimezone(UTC) < LATEST:
        last = max(last, round(now.timestamp() * 1000))
    # bins are made in local time; narrow bins keep the offset of the first day
    ahead = _local(first, zone) - first
    width = wanted or _readable_width(first + ahead, last + ahead)
    are_local_days = width % DAY_MS == 0 and zone.key != "UTC"
    local_last = _local(last, zone) if are_local_days else last + ahead
    low, high = _floor(first + ahead, width), _floor(local_last, width)

    count = (high - low) // width + 1
    if count > _MOST_BINS_REQUESTED:
        raise InputError(
            doing,
            got=f"{count:,} bins between the first and the last",
            expected=f"at most {_MOST_BINS_REQUESTED:,}",
            next_step="Use a wider freq, or a shorter span of the frame.",
        )

    starts = low + width * np.arange(count, dtype=np.int64)
    if not are_local_days:
        return starts - ahead, width

    midnights = pd.DatetimeIndex(pd.to_datetime(starts, unit="ms"))
    return np.asarray(
        localized(midnights, zone.key).as_unit("ms").asi8, dtype=np.int64
    ), width


def _readable_width(first: int, last: int) -> int:
    """Return the narrowest width that needs at most 60 bins."""
    for step in _STEPS:
        if _floor(last, step) - _floor(first, step) < _MOST_BINS * step:
            return step
    return _STEPS[-1]


def bin_numbers(
    times: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bin of each time, which is the last one that does not begin after it."""
    return np.asarray(np.searchsorted(starts, times, side="right") - 1, dtype=np.int64)


def localized(times: pd.DatetimeIndex, zone: str) -> pd.DatetimeIndex:
    """Return local times without a zone as times in UTC; a midnight that clocks skip is the next moment."""
    first = np.ones(len(times), dtype=bool)  # of a midnight that comes twice, the first
    return times.tz_localize(
        zone, ambiguous=first, nonexistent="shift_forward"
    ).tz_convert("UTC")


def _local(timestamp: int, zone: ZoneInfo) -> int:
    """Return the local time of a zone, as if it was UTC."""
    local = datetime.fromtimestamp(timestamp / 1000, zone)
    offset = local.utcoffset() or timedelta()
    return timestamp + round(offset.total_seconds() * 1000)


def _floor(timestamp: int, width: int) -> int:
    offset = _MONDAY if width % (7 * DAY_MS) == 0 else 0
    return (timestamp - offset) // width * width + offset
