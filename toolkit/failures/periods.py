"""Recognize episodes that begin at regular times, for example every day at 03:10.

The distance between the beginnings of two episodes is a multiple of the period, as an episode can be missing:

    begins     Mon 03:10    Tue 03:11    Thu 03:10    Fri 03:10
    distance           1 day       2 days       1 day          period: 1 day
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MINUTE: Final = 60_000_000_000  # nanoseconds
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_WEEK: Final = 7 * _DAY


@dataclass(frozen=True)
class PeriodTuning:
    """Constants, set on the seeded stories of the tests."""

    fewest: int = 3
    """Episodes: two are at some distance from each other by chance."""
    early: float = 0.02
    """Share of the period by which a beginning can be early or late: half an hour of a day, as jobs queue."""
    missing: float = 0.5
    """Share of the periods that can have no episode: a job that fails every second night is still nightly."""


TUNING: Final = PeriodTuning()


def begins_of_bursts(times: NDArray[np.int64]) -> list[int]:
    """Return when bursts begin: after at least half of the longest time without any failure.

    `times` are in nanoseconds since 1970, in order.

    >>> begins_of_bursts(np.array([10, 11, 12, 110, 111, 208]))
    [10, 110, 208]
    """
    if times.size < TUNING.fewest:
        return [int(time) for time in times]

    gaps = np.diff(times)
    begins = np.flatnonzero(2 * gaps >= gaps.max()) + 1
    return [int(time) for time in times[np.append(0, begins)]]


def period_in_words(begins: Sequence[int]) -> str | None:
    """Return at which times episodes begin, in UTC; None if they are not regular.

    `begins` are in nanoseconds since 1970, in order.

    >>> period_in_words([datetime(2026, 3, day, 3, 10, tzinfo=UTC).timestamp() * 1e9 for day in (2, 3, 5, 6)])
    'every day at 03:10'
    """
    if len(begins) < TUNING.fewest:
        return None

    times = np.asarray(begins, dtype=np.float64)
    for period in (_HOUR, _DAY, _WEEK):
        # For the example at the beginning and a period of a day, the numbers are 0, 1, 3 and 4. Four of five
        # days have an episode, which is enough, and no number occurs twice.
        numbers = np.rint((times - times[0]) / period)
        # compared with the median, as the first episode can be the one that is late
        offsets = times - times[0] - numbers * period
        late = np.abs(offsets - np.median(offsets))

        enough = len(np.unique(numbers)) >= TUNING.missing * (numbers[-1] + 1)
        if (
            enough
            and len(np.unique(numbers)) == len(times)
            and late.max() <= TUNING.early * period
        ):
            return _words(times[0] + float(np.median(offsets)), period)

    return None


def _words(begin: float, period: int) -> str:
    when = datetime.fromtimestamp(begin / 1e9, UTC)
    if period == _HOUR:
        return f"every hour at minute {when.minute}"

    day = "day" if period == _DAY else f"{when:%A}"
    return f"every {day} at {when:%H:%M}"
