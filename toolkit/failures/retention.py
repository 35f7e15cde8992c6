"""Determine how long the queue keeps entries, and check it against the data.

The service does not report the retention. It is, in this order: the value of the caller; the value of the
last sync of the snapshot; the variable ``TOOLKIT_RETENTION``; seven days. If the queue has an older
entry, the value is wrong: the retention is unknown, and at least the age of the oldest entry. For example, an
entry of 14 days contradicts seven days, so no entry is reported to expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pandas as pd

from toolkit.base.times import parse_duration
from toolkit.drawing.wording import counted, span
from toolkit.failures.selection import (
    receipt_of,
    select_retained,
    with_receipt,
    with_time,
)
from toolkit.failures.sources import AnyFrame
from toolkit.tables.freshness import data_end, stated_retention

ASSUMED: Final = "7d"
"""The retention if nothing states it."""

# queues may remove entries a little later than they expire
_LATE: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The time for which the queue keeps an entry.

    Attributes
    ----------
    length : timedelta
        As stated or assumed; valid only if `is_known`.
    oldest : timedelta
        Age of the oldest entry in the queue at the end of the data.
    """

    length: timedelta
    oldest: timedelta

    @property
    def is_known(self) -> bool:
        """Return whether all entries are younger than the retention."""
        return self.oldest <= self.length + _LATE

    @property
    def at_least(self) -> timedelta:
        """Return the shortest possible retention."""
        if self.is_known:
            return self.length
        return timedelta(days=max(self.oldest.days, 1))

    @property
    def words(self) -> str:
        """Return the retention in words.

        >>> Retention(length=timedelta(days=7), oldest=timedelta(days=14, hours=3)).words
        'unknown, at least 14 days'
        """
        if self.is_known:
            return span(self.length)
        return f"unknown, at least {counted(self.at_least.days, 'day')}"


def retention_of(
    failures: AnyFrame,
    stated: str | timedelta | None = None,
    now: datetime | None = None,
) -> Retention:
    """Return how long the queue of these failures keeps entries.

    >>> times = pd.to_datetime(["2026-01-01", "2026-01-15"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> retention_of(frame, "7d").words, retention_of(frame, "30d").words
    ('unknown, at least 14 days', '30 d')
    """
    receipt = receipt_of(failures)
    length = stated_retention(stated, None if receipt is None else receipt.retention)
    if length is None:
        length = parse_duration(ASSUMED)
    rows = select_retained(
        failures, ["failed_at", "created_at"], doing="finding the oldest failure"
    )
    times = (
        rows.then(with_time)
        .count(first=("when_", "min"), last=("when_", "max"))
        .to_pylist()[0]
    )
    if times["first"] is None:
        return Retention(length=length, oldest=timedelta())

    # The age of the oldest entry is measured at the end of the data, so that the
    # age of a snapshot does not count.
    first, last = (
        pd.Timestamp(times[name]).tz_convert(UTC).to_pydatetime(warn=False)
        for name in ("first", "last")
    )
    end = max(filter(None, (data_end(receipt), last)))
    if now is not None:  # a failure of the future comes from a wrong clock
        end = min(end, now)
    return Retention(length=length, oldest=max(end - first, timedelta()))


def with_gaps(
    failures: AnyFrame, stated: str | timedelta | None, kept: Retention
) -> AnyFrame:
    """Return the failures of a snapshot with the gaps that a stated retention leaves between its syncs.

    If nobody stated one, or older entries contradict it, the gaps stay as the syncs found them.
    """
    receipt = receipt_of(failures)
    if (
        receipt is None
        or not kept.is_known
        or stated_retention(stated, receipt.retention) is None
    ):
        return failures

    return with_receipt(failures, receipt.for_retention(kept.length))
