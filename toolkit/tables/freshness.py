"""Tell how old the data of a frame are, and which period they cover.

"0 failures in the last 24 hours" is only true if the data cover these hours. A snapshot whose sync stopped
two weeks ago has none of them, and is quiet for that reason alone. Whatever is told about a period (the last
24 hours, a change, new, worse, ongoing) asks `freshness` first:

>>> from datetime import UTC, datetime
>>> from toolkit.tables.receipt import Receipt
>>> done = Receipt(what="failures", source="http://127.0.0.1", scope={}, rows=3, complete=True,
...                started_at="2026-03-01T00:00:00+00:00", ended_at="2026-03-01T00:00:02+00:00")
>>> found = freshness(done, datetime(2026, 3, 1, 9, tzinfo=UTC), "2h")
>>> found.state, found.age, found.is_current
('old', datetime.timedelta(seconds=32400), False)

The rules:

1. The data end when the latest complete load began: what failed later may be missing. A filter with ``until``
   ends them earlier.
2. They may be as old as ``max_age``. The default follows the snapshot: three times the usual time between two
   complete syncs, but an hour at least. Without such syncs it is a day, the period that reports are about.
3. Data from the future come from a clock that is wrong, here or when they were loaded. Nobody knows how old
   they are. If the caller names a time, that is a look back at that time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from toolkit.base.times import Duration, parse_duration, parse_time
from toolkit.tables.receipt import Receipt, requested_time

RETENTION_VARIABLE: Final = "TOOLKIT_RETENTION"
"""States the retention of the queue for all functions that are called without one."""

Clock: TypeAlias = datetime | Callable[[], datetime] | None
"""The time of a report: one to look back at, a clock, or None for the clock of this machine."""

State: TypeAlias = Literal["current", "old", "ahead", "unknown"]

_INTERVALS: Final = 3  # one sync may fail and the next may be late
# somebody who syncs twice in a minute does not mean it
_LEAST: Final = timedelta(hours=1)
_WITHOUT_SYNCS: Final = timedelta(days=1)
PUNCTUAL: Final = timedelta(minutes=10)
"""Data that are not older count as of now: loading and reading take time."""


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How old data are at a time.

    Attributes
    ----------
    state : {"current", "old", "ahead", "unknown"}
        Whether they are at most as old as allowed; ``"ahead"`` if they are from the future, ``"unknown"`` if
        no receipt tells when they were loaded.
    now : datetime
    until : datetime or None
        When the latest complete load began.
    max_age : timedelta
        The age that is allowed.
    """

    state: State
    now: datetime
    until: datetime | None
    max_age: timedelta

    @property
    def is_current(self) -> bool:
        """Whether the data can tell something about the time up to now. Unknown data are not refused."""
        return self.state in {"current", "unknown"}

    @property
    def age(self) -> timedelta | None:
        """Time since the data end; negative if they are from the future."""
        if self.until is None:
            return None
        return self.now - self.until

    @property
    def end(self) -> datetime:
        """When the period ends that can be told about: now, or earlier if the data end earlier."""
        if self.until is None or self.until > self.now - PUNCTUAL:
            return self.now
        return self.until

    @property
    def problem(self) -> str:
        """Describe a problem with the age in a clause; "" if the age is allowed."""
        match self.state:
            case "old":
                return f"the data are {span_text(self.now - self.end)} old (complete until {_text(self.end)})"
            case "ahead":
                future = _text(self.until or self.now)
                return f"the data are of {future}, which is in the future: a clock is wrong"

        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values as a report has them in JSON."""
        until: str | None = None
        age_hours: float | None = None
        if self.until is not None:
            until = self.until.isoformat(timespec="milliseconds")
            age_hours = round((self.now - self.until) / timedelta(hours=1), 3)

        return {
            "state": self.state,
            "until": until,
            "age_hours": age_hours,
            "max_age_hours": round(self.max_age / timedelta(hours=1), 3),
        }


def freshness(
    receipt: Receipt | None, now: Clock = None, max_age: str | timedelta | None = None
) -> Freshness:
    """Return how old the data of a load or a snapshot are.

    Parameters
    ----------
    receipt : Receipt or None
        Of the frame.
    now : datetime or callable, optional
        A time to look back at, or a clock. Default: the clock of this machine.
    max_age : str or timedelta, optional
        How old they may be: "2h", "1d", … Default: see the module.
    """
    if max_age is None:
        allowed = default_max_age(_seconds_between_syncs(receipt))
    else:
        allowed = parse_duration(max_age, name="max_age")

    time = time_of(now)
    until = data_end(receipt)
    if until is None:
        return Freshness(state="unknown", now=time, until=None, max_age=allowed)

    looks_back = now is not None and not callable(now)
    state: State = "current"
    if time - until > allowed:
        state = "old"
    elif until - time > PUNCTUAL and not looks_back:
        state = "ahead"

    return Freshness(state=state, now=time, until=until, max_age=allowed)


def time_of(now: Clock) -> datetime:
    """Return the time that is meant, in UTC."""
    if now is None:
        return datetime.now(UTC)

    if callable(now):
        now = now()
    return parse_time(now, exact=True, name="now")


def data_end(receipt: Receipt | None) -> datetime | None:
    """Return when the data of a load or a snapshot end; None without a receipt."""
    if receipt is None:
        return None

    began = receipt.started_at
    if receipt.syncs is not None and receipt.syncs.complete_at is not None:
        began = receipt.syncs.complete_at
    until = requested_time(receipt, "until")
    ends = [datetime.fromisoformat(began)]
    if until is not None:
        ends.append(until)
    return min(end.astimezone(UTC) for end in ends)


def stated_retention(
    given: Duration | None, stored: timedelta | None
) -> timedelta | None:
    """Return how long the queue keeps entries, if anybody stated it.

    The argument of the caller comes first. The second is the retention that a sync of the snapshot got, as it
    belongs to this queue. The last is the environment variable, which may belong to another queue.
    """
    if given is not None:
        return parse_duration(given, name="retention")

    variable = os.environ.get(RETENTION_VARIABLE)
    if stored is None and variable:
        return parse_duration(variable, name=RETENTION_VARIABLE)

    return stored


def default_max_age(seconds_between_syncs: float | None) -> timedelta:
    """Return how old data may be if nobody states it: three times the time between two complete syncs.

    >>> default_max_age(7200.0), default_max_age(60.0), default_max_age(None)
    (datetime.timedelta(seconds=21600), datetime.timedelta(seconds=3600), datetime.timedelta(days=1))
    """
    if seconds_between_syncs is None:
        return _WITHOUT_SYNCS
    return max(_INTERVALS * timedelta(seconds=seconds_between_syncs), _LEAST)


def _seconds_between_syncs(receipt: Receipt | None) -> float | None:
    if receipt is None or receipt.syncs is None:
        return None
    return receipt.syncs.every_seconds


def span_text(length: timedelta) -> str:
    """Return a length of time in the largest unit that fits at least twice.

    >>> span_text(timedelta(hours=50)), span_text(timedelta(minutes=90)), span_text(timedelta(hours=3))
    ('2 days', '90 minutes', '3 hours')
    """
    for name, unit in (("days", timedelta(days=1)), ("hours", timedelta(hours=1))):
        if length >= 2 * unit:
            return f"{length // unit} {name}"
    return f"{length // timedelta(minutes=1)} minutes"


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def facts_of_age(found: Freshness) -> Mapping[str, str]:
    """Return the end of the data and the problem with the age for a summary, by name."""
    if found.until is None:
        return {}

    data_until = _text(found.until)
    if found.problem:
        data_until = f"{data_until}: {found.problem}"
    return {"data until": data_until}
