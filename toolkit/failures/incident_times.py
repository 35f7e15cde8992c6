"""Measure time for the search for incidents: spans, bins of equal length, and the history of a queue.

For example, a history of two weeks has bins of 20 minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from toolkit.failures.gaps import Nanoseconds, time_known, without_gaps
from toolkit.failures.usual_rates import cumulated

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
Span = tuple[int, int]
"""Start (included) and end (not included), in ns since 1970."""

_MINUTE: Final = 60_000_000_000  # nanoseconds
_STEPS: Final = [
    minutes * _MINUTE
    for minutes in (1, 2, 5, 10, 20, 30, 60, 180, 360, 1440, 7 * 1440, 28 * 1440)
]
_DAY: Final = 1440 * _MINUTE


@dataclass(frozen=True)
class TimeTuning:
    """Constants of the times of an incident, with their reasons."""

    few: int = 500
    """One outlier in time is allowed per this number of failures."""
    history: int = 30
    """A history with fewer failures, or shorter than a day, has no outliers in time."""
    apart: int = 3
    """Outliers are far away: by this multiple of the longest pause between the other failures."""
    part: int = 10
    """They are also apart by at least one in so many parts of all time."""


_TUNING: Final = TimeTuning()


def datetimes(span: Span) -> tuple[datetime, datetime]:
    """Convert two times in ns since 1970 to datetimes in UTC, truncated to milliseconds."""
    start, stop = (
        datetime.fromtimestamp(time // 1_000_000 / 1000, UTC) for time in span
    )
    return start, stop


def nanoseconds_of(time: datetime | None) -> int | None:
    """Return a time in ns since 1970; None without a time."""
    return None if time is None else round(time.timestamp() * 1e9)


@dataclass(frozen=True)
class TimeBins:
    """Bins of equal length that cover a span and begin at full steps, for example at full hours."""

    start: int
    end: int  # not included
    step: int

    @classmethod
    def covering(cls, start: int, end: int, most: int) -> TimeBins:
        """Return bins of the shortest usual length that needs at most `most` bins."""
        return cls(
            start,
            end,
            next((step for step in _STEPS if (end - start) // step < most), _STEPS[-1]),
        )

    @property
    def origin(self) -> int:
        """Return the start of the first bin."""
        return self.start // self.step * self.step

    @property
    def count(self) -> int:
        """Return the number of bins."""
        return (self.end - 1 - self.origin) // self.step + 1

    def positions(self, when: _Ints) -> _Ints:
        """Return the bin of each time."""
        return (when - self.origin) // self.step

    def known(self, gaps: Nanoseconds) -> _Floats:
        """Return the share of each bin outside of gaps, or 1 for all bins if everything is in gaps."""
        edges = self.origin + self.step * np.arange(self.count + 1, dtype=np.int64)
        known = time_known(gaps, edges) / self.step
        # if everything is in gaps, the failures that were read are all there is to compare
        if not known.any():
            return np.ones(self.count)

        return known

    def counted(self, when: _Ints) -> _Floats:
        """Return the number of times in each bin."""
        return np.bincount(self.positions(when), minlength=self.count).astype(
            np.float64
        )

    def span(self, bins: tuple[int, int]) -> Span:
        """Return the start and the end of a range of bins, within the covered span."""
        start, stop = (self.origin + position * self.step for position in bins)
        return max(start, self.start), min(stop, self.end)

    def share(self, span: Span, shares: _Floats) -> float:
        """Return the sum of the shares within a span. A bin that is only partly inside counts in part."""
        sums = cumulated(shares)
        edges = [(time - self.origin) / self.step for time in span]
        low, high = np.interp(edges, np.arange(sums.size), sums)

        return float(high - low)


def history_of(when: _Ints, now: int | None, gaps: Nanoseconds) -> tuple[slice, int]:
    """Return the slice of failures (oldest first) that form the history, and the end of the history.

    Failures after `now` are left out, and so are a few that are far from all others, for example because of a
    wrong clock. Gaps of a snapshot do not count as distance. The history ends at `now`, or right after the
    last failure. A long time without failures before `now` does not belong to it, because nobody knows
    whether the queue was read then.
    """
    stop = len(when)
    if now is not None:
        stop = int(np.searchsorted(when, now, "right"))
    first, few = 0, max(1, stop // _TUNING.few)
    # A gap of the snapshot is not a pause: nothing is known about it.
    between = np.diff(without_gaps(gaps, when[:stop]))
    # outliers can only be among the first and last `few` failures, so the other pauses show the usual length
    inner = between[few : len(between) - few]
    far = now or 0

    if inner.size >= _TUNING.history and inner.sum() >= _DAY:
        far = int(max(_TUNING.apart * inner.max(), inner.sum() // _TUNING.part))
        early, late = (
            np.flatnonzero(each > far) for each in (between[:few], between[-few:])
        )
        if early.size:
            first = int(early[-1]) + 1
        if late.size:
            stop -= few - int(late[0])

    last = 0
    if stop:
        last = int(when[stop - 1])
    end = last + 1
    if now is not None:
        end = max(end, min(now, last + far))
    return slice(first, stop), end
