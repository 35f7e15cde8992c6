"""Handle gaps: spans of time in which a snapshot may lack failures, so that rates exclude them.

For example, if no sync ran for two weeks and the queue keeps entries for one week, the failures of one week
are missing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.base.errors import InputError
from toolkit.failures.selection import receipt_of

Spans = tuple[tuple[datetime, datetime], ...]

Nanoseconds = tuple[tuple[int, int], ...]
"""The same spans in nanoseconds since 1970."""


def gaps_of(frame: object) -> Spans:
    """Return the gaps of the snapshot that a frame comes from, the earliest first.

    If the receipt cannot be read, the frame has no gaps: counting rows does not need the receipt.
    """
    try:
        receipt = receipt_of(frame)
    except InputError:
        return ()

    if receipt is None:
        return ()

    return tuple(gap.bounds for gap in receipt.gaps)


def overlap(gaps: Spans, start: datetime, end: datetime) -> timedelta:
    """Return how much of a span of time lies in gaps.

    >>> day = [datetime(2026, 3, number) for number in range(1, 8)]
    >>> overlap(((day[0], day[2]), (day[4], day[6])), day[1], day[5])
    datetime.timedelta(days=2)
    """
    nothing = timedelta()
    lengths = [max(min(end, stop) - max(start, begin), nothing) for begin, stop in gaps]
    return sum(lengths, nothing)


def inside(gaps: Spans, times: pd.Series) -> NDArray[np.bool_]:
    """Return which times lie in a gap."""
    in_gap = np.zeros(len(times), dtype=bool)
    for start, end in gaps:
        in_gap |= (
            (times >= pd.Timestamp(start)) & (times < pd.Timestamp(end))
        ).to_numpy(dtype=bool)

    return in_gap


def bins_in(
    gaps: Spans, starts: pd.DatetimeIndex, ends: pd.DatetimeIndex
) -> NDArray[np.bool_]:
    """Return which bins overlap with a gap, so that their counts may be too low."""
    in_gap = np.zeros(len(starts), dtype=bool)
    for start, end in gaps:
        in_gap |= np.asarray(
            (starts < pd.Timestamp(end)) & (ends > pd.Timestamp(start))
        )

    return in_gap


def in_nanoseconds(gaps: Spans) -> Nanoseconds:
    """Return gaps in nanoseconds since 1970."""
    return tuple(
        (pd.Timestamp(start).value, pd.Timestamp(end).value) for start, end in gaps
    )


def time_known(gaps: Nanoseconds, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the time between neighbouring edges without gaps, in nanoseconds.

    >>> time_known(((3, 5),), np.array([0, 4, 8, 12]))
    array([3, 3, 4])
    """
    return np.diff(without_gaps(gaps, edges))


def known_length(gaps: Nanoseconds, span: tuple[int, int]) -> int:
    """Return the length of a span without gaps, in nanoseconds.

    >>> known_length(((3, 5),), (0, 8))
    6
    """
    return int(time_known(gaps, np.array(span, dtype=np.int64))[0])


def without_gaps(gaps: Nanoseconds, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return times, earlier by the gaps that precede them, as if gaps took no time.

    >>> without_gaps(((3, 5),), np.array([0, 4, 8, 12]))
    array([ 0,  3,  6, 10])
    """
    shifted = times.copy()
    for start, end in gaps:
        # For example, with a gap from 10 to 15: time 8 stays 8, time 12 becomes 10, and time 20 becomes 15.
        shifted -= np.clip(times, start, end) - start

    return shifted
