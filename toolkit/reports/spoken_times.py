"""Write times as people say them, relative to the time of a report, in the zone that is shown.

>>> from datetime import UTC
>>> now = datetime(2026, 11, 27, 22, 25, tzinfo=UTC)
>>> [day_and_time(now - timedelta(hours=hours), now) for hours in (3, 30, 200, 9000)]
['19:25 today', '16:25 yesterday', '19 Nov', '17 Nov 2025']
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from toolkit.base.time_zones import time_zone
from toolkit.drawing.wording import counted

# not by strftime, because names of months then depend on the locale of the process
_MONTHS: Final = [
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
]
_YEAR: Final = timedelta(days=300)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


def day_text(when: datetime, now: datetime) -> str:
    """Return the day, for example "19 Nov", with the year if it is long ago.

    >>> from datetime import UTC
    >>> day_text(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC))
    '1 Mar'
    """
    local = when.astimezone(time_zone())
    text = f"{local.day} {_MONTHS[local.month - 1]}"
    if abs(now - when) > _YEAR:
        text += f" {local.year}"
    return text


def clock_text(when: datetime) -> str:
    """Return the time of day, for example "20:28"."""
    return f"{when.astimezone(time_zone()):%H:%M}"


def day_and_time(when: datetime, now: datetime) -> str:
    """Return the time of day if it is today or yesterday, and otherwise the day."""
    relative = _relative_day(when, now)
    if relative:
        return f"{clock_text(when)} {relative}"

    return day_text(when, now)


def at_time(when: datetime, now: datetime) -> str:
    """Return a time with the preposition that a sentence needs.

    >>> from datetime import UTC
    >>> now = datetime(2026, 11, 27, 22, 25, tzinfo=UTC)
    >>> [at_time(now - timedelta(hours=hours), now) for hours in (3, 30, 200)]
    ['at 19:25', 'yesterday at 16:25', 'on 19 Nov']
    """
    relative = _relative_day(when, now)
    if relative == "today":
        return f"at {clock_text(when)}"
    if relative:
        return f"{relative} at {clock_text(when)}"

    return f"on {day_text(when, now)}"


def times_between(first: datetime, last: datetime, now: datetime) -> str:
    """Return two times, with one day if both are on the same day.

    >>> from datetime import UTC
    >>> now = datetime(2026, 11, 27, 22, 25, tzinfo=UTC)
    >>> times_between(datetime(2026, 11, 22, 18, tzinfo=UTC), datetime(2026, 11, 22, 21, tzinfo=UTC), now)
    '22 Nov, 18:00 to 21:00'
    >>> times_between(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC), now)
    '20 Nov to 22 Nov'
    >>> times_between(now - timedelta(hours=30), now - timedelta(hours=4), now)
    '16:25 yesterday to 18:25 today'
    """
    days = day_text(first, now), day_text(last, now)
    clocks = clock_text(first), clock_text(last)
    if days[0] != days[1]:
        # the hours of the last two days matter, for example next to the time of a fix
        return f"{day_and_time(first, now)} to {day_and_time(last, now)}"

    day = _relative_day(first, now) or days[0]
    if clocks[0] == clocks[1]:
        return f"{day}, {clocks[0]}"

    return f"{day}, {clocks[0]} to {clocks[1]}"


def age_text(length: timedelta) -> str:
    """Return a length of time in its largest unit.

    >>> age_text(timedelta(hours=3, minutes=20)), age_text(timedelta(days=8, hours=7))
    ('3 h', '8 days')
    """
    if length < _HOUR:
        return f"{max(round(length / timedelta(minutes=1)), 1)} min"
    if length < 2 * _DAY:
        return f"{round(length / _HOUR)} h"

    return counted(length // _DAY, "day")


def _relative_day(when: datetime, now: datetime) -> str:
    """Return "today", "yesterday" or an empty string."""
    zone = time_zone()
    days = (now.astimezone(zone).date() - when.astimezone(zone).date()).days
    if days == 0:
        return "today"
    if days == 1:
        return "yesterday"

    return ""
