"""Choose the time zone in which times are shown and days are cut. Frames and JSON stay in UTC.

The zone is the first of these: the argument ``tz``; the zone of the report that is being written; the
environment variable ``TOOLKIT_TZ``; UTC. Each time is shown with the zone, for example ``CET`` or ``CEST``:

>>> from datetime import UTC
>>> [time_text(datetime(2026, month, 1, 9, 5, tzinfo=UTC), ZoneInfo("Europe/Berlin")) for month in (3, 7)]
['2026-03-01 10:05 CET', '2026-07-01 11:05 CEST']
>>> time_text(datetime(2026, 3, 1, 9, 5, tzinfo=UTC), ZoneInfo("Asia/Kathmandu"))
'2026-03-01 14:50 UTC+05:45'
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolkit.base.arguments import text, wrong

VARIABLE: Final = "TOOLKIT_TZ"
"""Environment variable with the name of the default time zone."""

_AROUND: Final = timedelta(days=400)
"""Times of a filter may be this much before and after the times of a chart."""

_SHOWN: Final[ContextVar[ZoneInfo | None]] = ContextVar("zone", default=None)


def time_zone(tz: str | tzinfo | None = None) -> ZoneInfo:
    """Return a time zone by name, or by an object with a name. If omitted, return the default zone.

    Raises
    ------
    InputError
        If no such time zone is known.
    """
    if tz is not None:
        return _named("tz", tz)

    shown = _SHOWN.get()
    if shown is not None:
        return shown

    return _named(VARIABLE, os.environ.get(VARIABLE) or "UTC")


def _named(argument: str, tz: str | tzinfo) -> ZoneInfo:
    if isinstance(tz, tzinfo):
        tz = str(tz)
    name = text(argument, tz, empty=False)
    if name.upper() == "UTC":
        name = "UTC"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, UnicodeError, OSError):
        raise wrong(argument, tz, "a name such as 'Europe/Istanbul'") from None
    except ValueError:
        raise wrong(argument, tz, "a name such as 'UTC'") from None


@contextmanager
def shown_in(zone: ZoneInfo) -> Iterator[None]:
    """Show times in this zone until the context ends, in this thread alone."""
    before = _SHOWN.set(zone)
    try:
        yield
    finally:
        _SHOWN.reset(before)


def time_text(when: datetime, zone: ZoneInfo | None = None) -> str:
    """Return a time to the minute, followed by the zone."""
    local = when.astimezone(zone or time_zone())
    return f"{local:%Y-%m-%d %H:%M} {abbreviation(local)}"


def span_of_times(first: datetime, last: datetime) -> tuple[str, str]:
    """Return two times as strings; the first is without a zone if both have the same.

    >>> from datetime import UTC
    >>> span_of_times(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    ('2026-03-01 00:00', '2026-03-02 00:00 UTC')
    """
    start, end = time_text(first), time_text(last)
    zone = end[len("2026-03-01 00:00") :]
    return start.removesuffix(zone), end


def zones_of_times(
    zone: ZoneInfo, first: datetime, last: datetime
) -> list[tuple[int, int, str]]:
    """Return the clock changes of a zone: the time, the offset from UTC after it, and the abbreviation.

    Times and offsets are in milliseconds. The first row begins at 0. A page converts times with this table,
    so that it shows the same abbreviations as Python, for example "CEST".

    >>> from datetime import UTC
    >>> zones_of_times(ZoneInfo("UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
    [(0, 0, 'UTC')]
    """
    # Python cannot list the clock changes of a zone, so the clock is read once per day. If it differs from
    # the day before, the change is searched hour by hour between the two days. For example, CET becomes CEST
    # on 29 March 2026 at 01:00 UTC. If the clock is read at noon, it differs at noon of that day. The search
    # begins at noon of 28 March and ends at 01:00.
    hour = timedelta(hours=1)
    table: list[tuple[int, int, str]] = []
    when = (first - _AROUND).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    while when <= last + _AROUND:
        ahead, name = _clock(when, zone)
        if not table:
            table.append((0, ahead, name))
        elif table[-1][1:] != (ahead, name):
            change = when - timedelta(days=1)
            while _clock(change, zone) != (ahead, name):
                change += hour
            table.append((round(change.timestamp() * 1000), ahead, name))

        when += timedelta(days=1)

    return table


def _clock(when: datetime, zone: ZoneInfo) -> tuple[int, str]:
    """Return the offset of clocks from UTC in milliseconds, and the abbreviation of the zone."""
    local = when.astimezone(zone)
    ahead = local.utcoffset() or timedelta()
    return round(ahead.total_seconds() * 1000), abbreviation(local)


def abbreviation(local: datetime) -> str:
    """Return the zone of a time that has one, as it is written after the time."""
    name = local.tzname() or ""
    if not name.startswith(("+", "-")):
        return name

    # zones without a name of their own are called "+0545"
    digits = name[1:].ljust(4, "0")
    return f"UTC{name[0]}{digits[:2]}:{digits[2:4]}"
