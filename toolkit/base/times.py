"""Parse times and durations as people and HTTP headers write them. All other packages use this parser.

If you mistype an argument, for example ``after="7 dayz"``, you get an error that lists the accepted forms.
Values of headers can come from anybody, so they never raise: unreadable and extreme values are ignored.
"""

from __future__ import annotations

import operator
import re
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from toolkit.base.arguments import plain
from toolkit.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

Time: TypeAlias = (
    "datetime | date | timedelta | str | int | np.datetime64 | np.timedelta64"
)
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
_UNIT: Final = {
    name: timedelta(**{unit: 1}) for unit, names in _UNITS.items() for name in names
}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]{1,7})[\s,]*", re.ASCII)
_PARTS: Final = re.compile(f"(?:{_PART.pattern})+", re.ASCII)
# capitals, but not a lone M
_CAPITALS: Final = re.compile(r"[A-LN-Z]|M(?=[A-Z])|(?<=[A-Z])M")
_DIGITS: Final = re.compile(r"\d{1,30}", re.ASCII)
_LONGEST_TEXT: Final = 80
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}

DAY_MS: Final = 86_400_000  # milliseconds of a day
_WIRE_UNITS: Final = {"d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_WIRE_DURATION: Final = re.compile(
    "".join(
        rf"(?:(\d{{1,9}}(?:\.\d{{1,9}})?){unit})?"
        for unit in ("d", "h", "m(?!s)", "s", "ms")
    ),
    re.ASCII,
)
_WIRE_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)

_TIME_EXPECTED: Final = (
    "a date or time such as '2026-01-31', '2026-01-31T12:00Z' or 'yesterday', an age such as '7d' or "
    "'24 hours', or Unix milliseconds"
)
_DURATION_EXPECTED: Final = (
    "a duration such as '90min', '12h', '7d' or '1d12h', of at most 36,500 days,"
    " or a timedelta"
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
    """Return a UTC timestamp in whole milliseconds, from any form that people write.

    These forms are accepted:

    - a datetime, pandas Timestamp or numpy datetime64, or ISO 8601 text; without a time zone, UTC
    - a date, ``"2026-01-31"``, ``"today"`` or ``"yesterday"``: the first millisecond of the day in UTC, or
      the last with `end`
    - an age, counted back from `now`: ``"7d"``, ``"2 days ago"``, a timedelta, ``"now"``
    - Unix milliseconds; if a number looks like Unix seconds, the error message gives a hint

    With `exact`, ages and dates are errors. `name` is the name of the argument in error messages. `zone`
    replaces UTC for dates, and for times without a time zone.

    >>> parse_time("7d", now=datetime(2026, 1, 31, tzinfo=UTC)).isoformat()
    '2026-01-24T00:00:00+00:00'
    >>> parse_time("2026-01-31", end=True).isoformat()
    '2026-01-31T23:59:59.999000+00:00'
    """
    present = now or datetime.now(UTC)
    form = _plain(value)
    if isinstance(form, str):
        form = _read_time(form.strip(), present, zone)
    if isinstance(form, int):
        form = _read_milliseconds(name, form)
    if exact and not isinstance(form, datetime):
        raise _not_a_time(name, value, f"one exact time, not {_inexact(form)}")

    try:
        utc = _instant(form, present, zone, end=end)
    except OverflowError:
        raise _not_a_time(name, value, "a time since 1970") from None

    if utc is None:
        raise _not_a_time(name, value, _TIME_EXPECTED)
    if utc < _EPOCH:
        raise _not_a_time(name, value, "a time since 1970")

    # field by field, so that subclasses (pandas.Timestamp) become plain datetimes
    whole = utc.microsecond // 1000 * 1000
    return datetime(
        utc.year,
        utc.month,
        utc.day,
        utc.hour,
        utc.minute,
        utc.second,
        whole,
        tzinfo=UTC,
    )


def _inexact(form: object) -> str:
    """Return the name of a form that has no exact time."""
    if isinstance(form, date):
        return "a whole day"
    return "an age"


def _instant(
    form: object, present: datetime, zone: tzinfo, *, end: bool
) -> datetime | None:
    """Return the time of a datetime, of an age, or of the begin or end of a day; None for other values."""
    if isinstance(form, datetime):
        return _utc(form, zone)
    if isinstance(form, timedelta) and form >= timedelta(0):
        return _utc(present) - form
    if not isinstance(form, date):
        return None
    if end:
        # the day ends at the next midnight, after 23 or 25 hours if clocks change on that day
        return _midnight(form + timedelta(days=1), zone) - _MILLISECOND

    return _midnight(form, zone)


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(0), zone).astimezone(UTC)


def parse_duration(
    value: Duration, *, name: str = "a duration", zero: bool = False
) -> timedelta:
    """Return a duration of at most 36,500 days, from a timedelta or text.

    Text consists of numbers with units (``"90min"``, ``"1d12h"``, ``"24 hours"``), or of a unit alone
    (``"D"``, ``"h"``), as pandas writes frequencies. Units are seconds, minutes, hours, days and weeks, by
    name or first letter. ``m`` and ``min`` are minutes. A capital ``M`` is an error, because it means months
    in pandas.

    >>> parse_duration("1d12h") == timedelta(hours=36), parse_duration("D") == parse_duration("24 hours")
    (True, True)
    """
    span = _plain(value)
    if isinstance(span, str):
        text = span.strip()
        span = _UNIT.get(_lower(text)) or _read_span(text)

    least = timedelta.resolution
    if zero:
        least = timedelta(0)
    if not isinstance(span, timedelta) or not least <= span <= _LONGEST:
        raise InputError(
            f"reading {name}",
            got=_shown(value),
            expected=_DURATION_EXPECTED,
            next_step=_suggested_days(span),
        )

    # as the plain type: a pandas Timedelta also counts nanoseconds
    return timedelta(
        days=span.days, seconds=span.seconds, microseconds=span.microseconds
    )


def _suggested_days(span: object) -> str | None:
    """Return a suggestion for a number without a unit, such as 7; None for other values."""
    if not isinstance(span, int):
        return None
    if span <= 0:
        return None

    return f"Did you mean '{span}d'?"


def unix_milliseconds() -> int:
    """Return the time of this machine's clock in Unix milliseconds."""
    return time_ns() // 1_000_000


def milliseconds(timestamp: datetime) -> int:
    """Return the Unix milliseconds of a datetime with a time zone, without rounding errors.

    >>> milliseconds(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC))
    1767225600001
    """
    return (timestamp - _EPOCH) // _MILLISECOND


def from_milliseconds(number: int) -> datetime:
    """Return the UTC datetime of Unix milliseconds; the inverse of `milliseconds`.

    >>> from_milliseconds(1767225600001).isoformat(timespec="milliseconds")
    '2026-01-01T00:00:00.001+00:00'
    """
    return _EPOCH + timedelta(milliseconds=number)


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration in a header, or of a number of seconds; None for other text.

    >>> [duration_ms(text) for text in ("1d10h30m", "6m5s", "120ms", "90", "5x")]
    [124200000, 365000, 120, 90000, None]
    """
    text = text.strip()
    if _WIRE_SECONDS.fullmatch(text):
        return round(float(text) * 1000)

    match = _WIRE_DURATION.fullmatch(text)
    # all units may be missing, so the expression also matches no text
    if not match or not text:
        return None

    total = 0.0
    for amount, unit_ms in zip(match.groups("0"), _WIRE_UNITS.values(), strict=True):
        total += float(amount) * unit_ms
    return round(total)


def http_date_ms(text: str) -> int | None:
    """Return the Unix milliseconds of an HTTP date, or None for other text. Without a zone, it is in UTC.

    >>> http_date_ms("Thu, 01 Jan 1970 00:00:10 GMT")
    10000
    >>> http_date_ms("Mon, 01 Jan 2024 00:00:00 +99999999999999999999") is None
    True
    """
    if len(text) > _LONGEST_TEXT:
        return None

    try:
        timestamp = parsedate_to_datetime(text)
        if timestamp.tzinfo is None:
            timestamp = timestamp.replace(tzinfo=UTC)
        return round((timestamp - _EPOCH).total_seconds()) * 1000
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def delay_ms(text: str, now_ms: int) -> int | None:
    """Return the milliseconds of delay that a header such as Retry-After asks for.

    The header has a number of seconds, a duration or an HTTP date. If the date is in the past, the delay is
    0. Other text and delays above 36,500 days return None.

    >>> delay_ms("Thu, 01 Jan 1970 00:00:10 GMT", 4000), delay_ms("2", 0), delay_ms("-1", 0)
    (6000, 2000, None)
    """
    delay = duration_ms(text.lower())
    if delay is None:
        timestamp = http_date_ms(text)
        if timestamp is None:
            return None
        delay = max(0, timestamp - now_ms)

    if delay > _LONGEST // _MILLISECOND:
        return None

    return delay


def _plain(value: Any) -> Any:
    """Return scalars of numpy and pandas as Python values; NaT, booleans and other types become None."""
    value = plain(value)
    if isinstance(value, bool):
        return None

    # not imported here: if it is not loaded, the value cannot come from it
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.datetime64 | numpy.timedelta64):
        return _plain_of_numpy(value)

    # an offset of pandas, for example Day(7), has the freqstr "7D"
    if hasattr(value, "rollforward"):
        value = value.freqstr
    if isinstance(value, date | timedelta | str):
        return _none_if_missing(value)

    return _whole_number(value)


def _whole_number(value: Any) -> int | None:
    """Return an integer of Python, numpy or pandas as an int, or None for another value."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _none_if_missing(value: T) -> T | None:
    if value == value:  # noqa: PLR0124 - NaT is not equal to itself
        return value
    return None


def _plain_of_numpy(value: Any) -> Any:
    """Return a datetime64 or timedelta64 as a Python value, or None for NaT and times out of range."""
    result = value.item()
    if isinstance(result, int):
        # Python has no nanoseconds, so numpy returns them as an integer. Microseconds have a Python type.
        # The name of the type is "datetime64[ns]" or "timedelta64[ns]".
        kind, _, _ = value.dtype.name.partition("[")
        result = value.astype(f"{kind}[us]").item()

    if isinstance(result, int):
        return None

    return result


def _read_time(
    text: str, present: datetime, zone: tzinfo
) -> timedelta | int | datetime | date | None:
    """Return the age, number, date or datetime that text expresses, or None."""
    lowered = text.lower()
    if lowered in _DAYS_AGO:
        today = _utc(present).astimezone(zone).date()
        return today - timedelta(days=_DAYS_AGO[lowered])
    if lowered == "now":
        return timedelta(0)
    # eight digits are a date in the basic format of ISO 8601, not Unix milliseconds
    if _DIGITS.fullmatch(text) and len(text) != len("20260131"):
        return int(text)

    span = _read_span(re.sub(r"\s+ago$", "", text))
    if span is not None:
        return span

    for read_iso in (date.fromisoformat, datetime.fromisoformat):
        with suppress(ValueError):
            return read_iso(text)

    return None


def _read_span(text: str) -> timedelta | None:
    """Return the sum of numbers with units, or None for other text.

    >>> str(_read_span("1d12h")), _read_span("soon")
    ('1 day, 12:00:00', None)
    """
    lowered = _lower(text)
    if len(text) > _LONGEST_TEXT:
        return None
    if not _PARTS.fullmatch(lowered):
        return None

    try:
        return sum(map(_span_of_part, _PART.finditer(lowered)), timedelta())
    except KeyError:  # another unit
        return None
    except OverflowError:
        return timedelta.max


def _span_of_part(part: re.Match[str]) -> timedelta:
    amount, unit = part.groups()
    return float(amount) * _UNIT[unit]


def _lower(text: str) -> str:
    """Return text in lower case, except for a lone ``M``, which means months in pandas."""
    return _CAPITALS.sub(lambda capitals: capitals[0].lower(), text)


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
            f"reading {name}",
            got=str(number)[:40],
            expected="Unix milliseconds from 1970 to 9999",
        )

    return from_milliseconds(number)


def _utc(timestamp: datetime, zone: tzinfo = UTC) -> datetime:
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=zone)
    return timestamp.astimezone(UTC)


def _not_a_time(name: str, value: object, expected: str) -> InputError:
    return InputError(f"reading {name}", got=_shown(value), expected=expected)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:_LONGEST_TEXT])
    if value is None or isinstance(value, bool | int | float | date | timedelta):
        return repr(value)[:_LONGEST_TEXT]

    return type(value).__name__
