"""Times and durations as people and HTTP headers write them: the one parser for the whole package.

Headers may come from anybody: their values are read or ignored, within bounds, and never raise, unlike with
the readers of the libraries.
"""

from __future__ import annotations

import operator
import re
import sys
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toolkit.base.arguments import plain
from toolkit.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Time: TypeAlias = "datetime | date | timedelta | str | int | np.datetime64 | np.timedelta64"
"""Accepted by `parse_time`."""
Duration: TypeAlias = "timedelta | str | np.timedelta64"
"""Accepted by `parse_duration`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST: Final = timedelta(days=36_500)
_SECONDS_LOOK_LIKE: Final = 100_000_000_000  # below: as milliseconds, before March 1973
_LATEST: Final = 253_402_300_799_999  # the last millisecond of the year 9999

_UNITS: Final = {
    "seconds": ("s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hr", "hrs", "hour", "hours"),
    "days": ("d", "day", "days"),
    "weeks": ("w", "week", "weeks"),
}
_UNIT: Final = {name: timedelta(**{unit: 1}) for unit, names in _UNITS.items() for name in names}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]{1,7})[\s,]*", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,30}", re.ASCII)
_LONGEST_TEXT: Final = 80
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}

DAY_MS: Final = 86_400_000  # milliseconds of a day
_WIRE_UNITS: Final = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_WIRE_DURATION: Final = re.compile(
    "".join(rf"(?:(\d{{1,9}}(?:\.\d{{1,9}})?){unit})?" for unit in ("d", "h", "m(?!s)", "s", "ms")),
    re.ASCII,
)
_WIRE_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)

_TIME_EXPECTED: Final = (
    "a date or time such as '2026-01-31', '2026-01-31T12:00Z' or 'yesterday', an age such as '7d' or "
    "'24 hours', or Unix milliseconds"
)
_DURATION_EXPECTED: Final = (
    "a duration such as '90min', '12h', '7d' or '1d12h', of at most 36,500 days, or a timedelta"
)


def parse_time(
    value: Time,
    *,
    now: datetime | None = None,
    end: bool = False,
    exact: bool = False,
    name: str = "a time",
    zone: tzinfo = UTC,
) -> datetime:
    """A UTC timestamp in whole milliseconds from any of the forms that people write it in.

    These are a datetime, pandas Timestamp or numpy datetime64 (UTC without a time zone); ISO 8601 text; a
    date, its text, ``"today"`` or ``"yesterday"``: its first millisecond in UTC, or its last with `end`; an
    age (``"7d"``, ``"2 days ago"``, a timedelta, ``"now"``), counted back from `now`; or Unix milliseconds.
    With `exact`, ages and dates are errors. `name` is the argument in errors; numbers that look like Unix
    seconds get a hint. With another `zone`, dates and times without a time zone are of that zone.

    >>> parse_time("7d", now=datetime(2026, 1, 31, tzinfo=UTC)).isoformat()
    '2026-01-24T00:00:00+00:00'
    >>> parse_time("2026-01-31", end=True).isoformat()
    '2026-01-31T23:59:59.999000+00:00'
    """
    result = _plain(value)
    present = datetime.now(UTC) if now is None else now
    if isinstance(result, str):
        result = _read_time(result.strip(), present, zone)
    timestamp: datetime | date | None = result if isinstance(result, date) else None
    try:
        if isinstance(result, timedelta) and not exact and result >= timedelta(0):
            timestamp = _utc(present) - result
        elif isinstance(result, int):
            timestamp = _read_milliseconds(name, result)
        if timestamp is None:
            raise _not_a_time(name, value, "one exact time, not an age" if exact else _TIME_EXPECTED)
        if not isinstance(timestamp, datetime):
            if exact:
                raise _not_a_time(name, value, "one exact time, not a whole day")
            day_after = timestamp + timedelta(days=1)
            # the next midnight: a day of a zone that changes its clocks has 23 or 25 hours
            midnight = datetime.combine(day_after if end else timestamp, time(0), zone).astimezone(UTC)
            timestamp = midnight - _MILLISECOND if end else midnight
        utc = _utc(timestamp, zone)
    except OverflowError:
        raise _not_a_time(name, value, "a time since 1970") from None
    if utc < _EPOCH:
        raise _not_a_time(name, value, "a time since 1970")
    # field by field, so that subclasses (pandas.Timestamp) become plain datetimes
    whole = utc.microsecond // 1000 * 1000
    return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, whole, tzinfo=UTC)


def parse_duration(value: Duration, *, name: str = "a duration", zero: bool = False) -> timedelta:
    """A duration of at most 36,500 days, from a timedelta or text.

    Text is numbers with units (``"90min"``, ``"1d12h"``, ``"24 hours"``), or a unit alone (``"D"``, ``"h"``),
    as pandas writes frequencies. Units are seconds, minutes, hours, days and weeks, by their names or first
    letters; ``m`` and ``min`` are minutes, and a capital ``M``, which elsewhere means months, is an error.

    >>> parse_duration("1d12h") == timedelta(hours=36), parse_duration("D") == parse_duration("24 hours")
    (True, True)
    """
    span = _plain(value)
    if isinstance(span, str):
        text = span.strip()
        span = _UNIT.get(_lower(text)) or _read_span(text)
    if not isinstance(span, timedelta) or not timedelta(0) <= span <= _LONGEST or not (span or zero):
        raise InputError(
            f"reading {name}",
            got=_shown(value),
            expected=_DURATION_EXPECTED,
            next_step=f"Did you mean '{span}d'?" if isinstance(span, int) and span > 0 else None,
        )
    # as the plain type: a pandas Timedelta counts nanoseconds too
    return timedelta(days=span.days, seconds=span.seconds, microseconds=span.microseconds)


def unix_milliseconds() -> int:
    """Return the time of this machine's clock in Unix milliseconds."""
    return time_ns() // 1_000_000


def milliseconds(timestamp: datetime) -> int:
    """Unix milliseconds of a datetime with a time zone, exactly.

    >>> milliseconds(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC))
    1767225600001
    """
    return (timestamp - _EPOCH) // _MILLISECOND


def from_milliseconds(number: int) -> datetime:
    """The inverse of `milliseconds`, exactly.

    >>> from_milliseconds(1767225600001).isoformat(timespec="milliseconds")
    '2026-01-01T00:00:00.001+00:00'
    """
    return _EPOCH + timedelta(milliseconds=number)


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration in a header, or of a bare number of seconds; None for other text.

    >>> [duration_ms(text) for text in ("1d10h30m", "6m5s", "120ms", "90", "5x")]
    [124200000, 365000, 120, 90000, None]
    """
    text = text.strip()
    if _WIRE_SECONDS.fullmatch(text):
        return round(float(text) * 1000)
    match = _WIRE_DURATION.fullmatch(text)
    if not match or not text:
        return None
    parts = zip(match.groups(), _WIRE_UNITS.values(), strict=True)
    return round(sum(float(part) * unit for part, unit in parts if part))


def http_date_ms(text: str) -> int | None:
    """Unix milliseconds of an HTTP date, without a zone in UTC; None for other text.

    >>> http_date_ms("Thu, 01 Jan 1970 00:00:10 GMT")
    10000
    >>> http_date_ms("Mon, 01 Jan 2024 00:00:00 +99999999999999999999") is None
    True
    """
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        timestamp = parsedate_to_datetime(text)
        timestamp = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
        return round((timestamp - _EPOCH).total_seconds()) * 1000
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def delay_ms(text: str, now_ms: int) -> int | None:
    """The delay that a header such as Retry-After asks for: seconds, a duration or an HTTP date.

    A date in the past is no delay. None for other text, and for more than 36,500 days.

    >>> delay_ms("Thu, 01 Jan 1970 00:00:10 GMT", 4000), delay_ms("2", 0), delay_ms("-1", 0)
    (6000, 2000, None)
    """
    delay = duration_ms(text.lower())
    if delay is None:
        timestamp = http_date_ms(text)
        delay = None if timestamp is None else max(0, timestamp - now_ms)
    return None if delay is None or delay > _LONGEST // _MILLISECOND else delay


def _plain(value: Any) -> Any:
    """Scalars of numpy as Python's own; NaT and booleans as None."""
    value = plain(value)
    if isinstance(value, bool):
        return None
    numpy = sys.modules.get("numpy")  # not imported for this: without it, no value is one of its own
    if numpy is not None and isinstance(value, numpy.datetime64 | numpy.timedelta64):
        kind = "datetime64" if isinstance(value, numpy.datetime64) else "timedelta64"
        result = value.item()
        # nanoseconds are returned as an integer, as Python's types do not hold them
        result = value.astype(f"{kind}[us]").item() if isinstance(result, int) else result
        return None if isinstance(result, int) else result
    if isinstance(value, date | timedelta):
        return value if value == value else None  # noqa: PLR0124 - NaT is not equal to itself
    if hasattr(value, "rollforward"):  # an offset of pandas, as it writes it
        value = value.freqstr
    try:
        return value if isinstance(value, str) else operator.index(value)
    except TypeError:
        return None


def _read_time(text: str, present: datetime, zone: tzinfo) -> timedelta | int | datetime | date | None:
    """An age, a number, a date or datetime, or none of these."""
    if (days_ago := _DAYS_AGO.get(text.lower())) is not None:
        return _utc(present).astimezone(zone).date() - timedelta(days=days_ago)
    if text.lower() == "now":
        return timedelta(0)
    if _DIGITS.fullmatch(text) and len(text) != len("20260131"):
        return int(text)
    span = _read_span(re.sub(r"\s+ago$", "", text))
    if span is not None:
        return span
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _read_span(text: str) -> timedelta | None:
    if len(text) > _LONGEST_TEXT or not re.fullmatch(f"(?:{_PART.pattern})+", _lower(text), re.ASCII):
        return None
    total = timedelta(0)
    for amount, unit in _PART.findall(_lower(text)):
        if unit not in _UNIT:
            return None
        try:
            total += float(amount) * _UNIT[unit]
        except OverflowError:
            return timedelta.max
    return total


def _lower(text: str) -> str:
    """In lower case, but for ``M``: months, wherever it is not minutes."""
    return re.sub(r"[A-Z]+", lambda letters: letters[0] if letters[0] == "M" else letters[0].lower(), text)


def _read_milliseconds(name: str, number: int) -> datetime:
    if 0 <= number < _SECONDS_LOOK_LIKE:
        raise InputError(
            f"reading {name}",
            got=f"{number}, which looks like Unix seconds",
            expected="Unix milliseconds",
            next_step=f"Did you mean {number * 1000}?",
        )
    if not 0 <= number <= _LATEST:
        raise InputError(
            f"reading {name}", got=str(number)[:40], expected="Unix milliseconds from 1970 to 9999"
        )
    return from_milliseconds(number)


def _utc(timestamp: datetime, zone: tzinfo = UTC) -> datetime:
    aware = timestamp.replace(tzinfo=zone) if timestamp.tzinfo is None else timestamp
    return aware.astimezone(UTC)


def _not_a_time(name: str, value: object, expected: str) -> InputError:
    return InputError(f"reading {name}", got=_shown(value), expected=expected)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:_LONGEST_TEXT])
    if value is None or isinstance(value, bool | int | float | date | timedelta):
        return repr(value)[:_LONGEST_TEXT]
    return type(value).__name__
