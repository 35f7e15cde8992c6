"""How long the queue keeps entries: one answer for whatever speaks of expiry, checked against the data.

The service does not tell. The answer is, in this order: what the caller states; what a sync of the snapshot
was told; the environment variable ``TOOLKIT_RETENTION``; seven days. An entry that is still in the queue and
older than that contradicts the answer: then the retention is unknown, and at least as long as the age of the
oldest entry. Nothing is told to expire from an answer that the data contradict.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pandas as pd

from toolkit.analysis.selection import receipt_of, select_retained, with_receipt, with_time
from toolkit.analysis.sources import AnyFrame
from toolkit.drawing.wording import counted, span
from toolkit.freshness import data_end, stated_retention
from toolkit.times import parse_duration

ASSUMED: Final = "7d"
"""The retention if nothing states it."""

_LATE: Final = timedelta(hours=1)  # queues may remove entries a little later than they expire


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the queue keeps an entry.

    Attributes
    ----------
    length : timedelta
        As stated or assumed; used only if `is_known`.
    oldest : timedelta
        Age of the oldest entry in the queue when the data end.
    """

    length: timedelta
    oldest: timedelta

    @property
    def is_known(self) -> bool:
        """Whether no entry is older than the retention."""
        return self.oldest <= self.length + _LATE

    @property
    def at_least(self) -> timedelta:
        """The shortest time for which the queue keeps entries."""
        return self.length if self.is_known else timedelta(days=max(self.oldest.days, 1))

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
    failures: AnyFrame, stated: str | timedelta | None = None, now: datetime | None = None
) -> Retention:
    """Return how long the queue of these failures keeps entries, as far as the data allow.

    >>> times = pd.to_datetime(["2026-01-01", "2026-01-15"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> retention_of(frame, "7d").words, retention_of(frame, "30d").words
    ('unknown, at least 14 days', '30 d')
    """
    loaded = receipt_of(failures)
    known = stated_retention(stated, None if loaded is None else loaded.retention)
    length = parse_duration(ASSUMED) if known is None else known
    rows = select_retained(failures, ["failed_at", "created_at"], doing="finding the oldest failure")
    times = rows.then(with_time).count(first=("when_", "min"), last=("when_", "max")).to_pylist()[0]
    if times["first"] is None:
        return Retention(length=length, oldest=timedelta())
    first, last = (pd.Timestamp(times[name]).tz_convert(UTC).to_pydatetime() for name in ("first", "last"))
    ends = [time for time in (data_end(loaded), last) if time is not None]
    # a failure from the future is of a wrong clock, and the data can be looked at as of an earlier time
    end = min([max(ends), *([] if now is None else [now])])
    return Retention(length=length, oldest=max(end - first, timedelta()))


def with_gaps(failures: AnyFrame, stated: str | timedelta | None, kept: Retention) -> AnyFrame:
    """Return the failures of a snapshot with the gaps that a stated retention leaves between its syncs.

    If nobody stated one, or older entries contradict it, the gaps stay as the syncs found them.
    """
    receipt = receipt_of(failures)
    if receipt is None or not kept.is_known or stated_retention(stated, receipt.retention) is None:
        return failures
    return with_receipt(failures, receipt.for_retention(kept.length))
