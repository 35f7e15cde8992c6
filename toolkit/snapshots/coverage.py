"""Find gaps in a snapshot of failures: times for which entries may have expired before they were read.

A sync sees everything that the queue still keeps. If the last complete sync is longer ago than the queue
keeps entries, entries that entered and expired in between were never read. The queue does not report how long
it keeps them, so the following is used, in this order:

1. An entry of the last complete sync that is still in the queue: entries expire in the order of their age, so
   nothing that entered later has expired. The snapshot has no gap.
2. The retention, if it was given: with the last sync on day 0, a sync on day 8 and three days, entries from
   day 0 to day 5 are missing.
3. The longest time for which the queue is known to have kept an entry, and three days at least, which is the
   shortest retention of the public service. Entries that entered within that time are still in the queue.
   Entries before it, and before the oldest failure that was read, may be missing.

If somebody states another retention later, for example for a report, the gaps are found again: receipts keep
the pauses between syncs that share no entry.

A clock can be wrong during a sync, for example in 1986 after a battery failed. Then it seems that the queue
has kept an entry for 40 years, and no pause would ever be a gap. So an entry that was first seen before the
first sync is no evidence, and the estimate begins again when the clock was set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from toolkit.base.times import milliseconds
from toolkit.tables.receipt import OVERDUE, Gap, Pause

SHORTEST_RETENTION: Final = timedelta(days=3)  # of the public service's plans

_ONE_SYNC: Final = timedelta(minutes=1)
"""Two times that are noted when a sync begins are not further apart."""

_MOST_GAPS: Final = 500
"""Gaps and pauses that a manifest keeps. If there are more, the two earliest are merged into a longer one."""

_SHORTEST_PAUSE: Final = timedelta(days=1)
"""A queue that keeps entries for less than a day needs more than one sync a day anyway."""

_UNITS: Final = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
)


class Coverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start of the first complete sync, and the gaps since then. The last one is in `complete_at`.

    `since` is when the first complete sync began, and `oldest` the earliest failure that it read. `oldest` is
    None if a toolkit of format 1 wrote the manifest; the time before `since` is not judged then. The queue
    kept an entry for `kept_seconds` at least.
    """

    since: str
    oldest: str | None = None
    kept_seconds: float = 0.0
    gaps: tuple[Gap, ...] = ()

    @property
    def instants(self) -> Iterator[tuple[str, str]]:
        """Yield all times, with their names."""
        yield "since", self.since
        if self.oldest is not None:
            yield "oldest", self.oldest
        for gap in self.gaps:
            yield "start of a gap", gap.start
            yield "end of a gap", gap.end

    @property
    def begin(self) -> datetime:
        """Return `since` as a time."""
        return datetime.fromisoformat(self.since)

    @property
    def earliest_ms(self) -> int:
        """Return when an entry can have been first seen at the earliest, in Unix milliseconds."""
        return milliseconds(self.begin) - _ONE_SYNC // timedelta(milliseconds=1)


class SyncTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one complete sync.

    `last` is when the complete sync before it began, and `oldest` the earliest failure among the rows that
    were not stored, or the time of the sync. `kept` is the time since the oldest of the remaining entries was
    first seen. `overlaps` tells whether an entry of the last complete sync is still in the queue.
    `is_set_back` tells whether the clock was set back since the latest complete sync.
    """

    began: datetime
    last: datetime | None
    oldest: datetime
    kept: timedelta
    overlaps: bool
    is_set_back: bool = False


def extended(
    before: Coverage | None, sync: SyncTimes, retention: timedelta | None
) -> tuple[Coverage, Gap | None]:
    """Return the coverage after one more complete sync, and the gap that it found, if any."""
    if sync.last is None:
        return Coverage(since=_text(sync.began), oldest=_text(sync.oldest)), None

    if before is None:  # of a manifest of format 1
        before = Coverage(since=_text(sync.last))
    kept = max(sync.kept, _known_kept(before, sync.last, is_set_back=sync.is_set_back))
    gap = _gap(sync, kept, retention)
    gaps = before.gaps
    if gap:
        gaps = _limited((*gaps, gap))
    return msgspec.structs.replace(
        before, kept_seconds=kept.total_seconds(), gaps=gaps
    ), gap


def _known_kept(before: Coverage, last: datetime, *, is_set_back: bool) -> timedelta:
    """Return how long the queue has kept entries by earlier syncs; zero if a wrong clock made this up."""
    kept = timedelta(seconds=before.kept_seconds)
    if is_set_back or kept > last - before.begin + _ONE_SYNC:
        return timedelta()

    return kept


def with_pause(before: tuple[Pause, ...], sync: SyncTimes) -> tuple[Pause, ...]:
    """Return the pauses of a snapshot with the one that a complete sync ends, if it is one."""
    if sync.last is None or sync.overlaps or sync.began - sync.last < _SHORTEST_PAUSE:
        return before

    pauses = (*before, Pause(start=_text(sync.last), end=_text(sync.began)))
    if len(pauses) <= _MOST_GAPS:
        return pauses

    first, second, *others = pauses
    return (Pause(start=first.start, end=second.end), *others)


def overdue_note(gap: Gap, began: datetime) -> str:
    """Return the note of the receipt of the sync that found a gap."""
    start, _ = gap.bounds
    missing = "may be missing"
    if gap.is_certain:
        missing = "are missing"
    return (
        f"{OVERDUE}{_age(began - start)} ago; entries that expired in between {missing}"
    )


def _gap(sync: SyncTimes, kept: timedelta, retention: timedelta | None) -> Gap | None:
    """Return the times between the last complete sync and this one whose entries can have expired."""
    if sync.last is None or sync.overlaps:
        return None

    end = sync.began - (retention or max(kept, SHORTEST_RETENTION))
    if retention is None:
        end = min(end, sync.oldest)
    if end <= sync.last:
        return None

    return Gap(start=_text(sync.last), end=_text(end), is_certain=retention is not None)


def _limited(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    if len(gaps) <= _MOST_GAPS:
        return gaps

    first, second, *others = gaps
    return (Gap(start=first.start, end=second.end), *others)


def _age(age: timedelta) -> str:
    """Return an age in the largest unit that gives at least two, for example "8 days" or "36 hours"."""
    for name, unit in _UNITS:
        if age >= 2 * unit:
            return f"{round(age / unit)} {name}s"

    minutes = max(round(age / timedelta(minutes=1)), 1)
    if minutes == 1:
        return "1 minute"

    return f"{minutes} minutes"


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
