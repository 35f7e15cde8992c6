"""Times and durations in the forms that people write them in."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.times import milliseconds, parse_duration, parse_time
from toolkit.errors import InputError
from toolkit.filters.failure import FailureFilter

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = datetime(2026, 11, 20, tzinfo=UTC)

times = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(9999, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.just(UTC),
)


@pytest.mark.parametrize(
    ("age", "before"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("30 min", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("12H", timedelta(hours=12)),
        ("24 hours", timedelta(days=1)),
        ("1 hour", timedelta(hours=1)),
        ("7d", timedelta(days=7)),
        ("7 days", timedelta(days=7)),
        ("2 days ago", timedelta(days=2)),
        ("1d12h", timedelta(hours=36)),
        ("1 day, 12 hours ago", timedelta(hours=36)),
        (" 1.5 d ", timedelta(hours=36)),
        ("2w", timedelta(weeks=2)),
        (timedelta(hours=3), timedelta(hours=3)),
        (pd.Timedelta("3h"), timedelta(hours=3)),
        (np.timedelta64(3, "h"), timedelta(hours=3)),
    ],
)
def test_ages_count_back_from_now(age: Any, before: timedelta) -> None:
    """An age, as text or a timedelta of any library, is that long before the clock given."""
    assert parse_time(age, now=NOW) == NOW - before
    assert FailureFilter(since=age, now=NOW).since == NOW - before


@pytest.mark.parametrize(
    "day",
    [
        "2026-11-20",
        "20261120",
        date(2026, 11, 20),
        np.datetime64("2026-11-20"),
        " 2026-11-20 ",
    ],
)
def test_a_date_is_its_start_for_since_and_its_end_for_until(day: Any) -> None:
    """Since and until the same date choose that whole day in UTC, to the millisecond."""
    chosen = FailureFilter(since=day, until=day)
    assert chosen.since == DAY
    assert chosen.until == DAY + timedelta(days=1) - timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("word", "day"), [("today", NOW), ("Yesterday", NOW - timedelta(days=1))]
)
def test_words_for_days_are_dates(word: str, day: datetime) -> None:
    """Today and yesterday are days in UTC; now is a time."""
    start = day.replace(hour=0, minute=0, second=0, microsecond=0)
    assert parse_time(word, now=NOW) == start
    assert parse_time(word, now=NOW, end=True) == start + timedelta(days=1) - timedelta(
        milliseconds=1
    )
    assert parse_time("now", now=NOW) == NOW
    with pytest.raises(InputError, match="not a whole day"):
        parse_time(word, now=NOW, exact=True)


@pytest.mark.parametrize(
    "moment",
    [
        "2026-11-20T10:30",
        "2026-11-20 10:30:00",
        "2026-11-20T10:30Z",
        "2026-11-20T13:30+03:00",
        datetime(2026, 11, 20, 10, 30),  # noqa: DTZ001 - the point
        datetime(2026, 11, 20, 10, 30, tzinfo=UTC),
        pd.Timestamp("2026-11-20 10:30"),
        pd.Timestamp("2026-11-20 13:30", tz="Europe/Istanbul"),
        np.datetime64("2026-11-20T10:30"),
        np.datetime64("2026-11-20T10:30", "ns"),
        1_795_170_600_000,
        np.int64(1_795_170_600_000),
        "1795170600000",
    ],
)
def test_times_without_a_time_zone_are_utc(moment: Any) -> None:
    """Datetimes, Timestamps, numpy's times, text and Unix milliseconds are one time, at either end."""
    expected = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    for end in (False, True):
        result = parse_time(moment, end=end)
        assert (result, type(result)) == (expected, datetime)


@given(times)
def test_times_become_plain_utc_milliseconds(moment: datetime) -> None:
    """A datetime, its text, and a pandas Timestamp are the same time, truncated to milliseconds."""
    expected = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    east = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    for form in (
        moment,
        moment.replace(tzinfo=None),
        moment.isoformat(),
        east,
        east.isoformat(),
        moment.isoformat().replace("+00:00", "Z"),
    ):
        assert parse_time(form) == expected
    assert (
        datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds(expected))
        == expected
    )
    if moment.year > 1973:
        assert parse_time(milliseconds(expected)) == expected
    if moment.year < 2200:
        stamp = parse_time(pd.Timestamp(moment))
        assert (stamp, type(stamp)) == (expected, datetime)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1_795_170_600, "looks like Unix seconds.*Did you mean 1795170600000"),
        ("1795170600", "looks like Unix seconds"),
        (0, "seconds"),
        (10**18, "milliseconds from 1970 to 9999"),
        (-1, "milliseconds"),
        (1.5e12, "1500000000000.0"),
        (True, "True"),
        (pd.NaT, "NaT"),
        (np.datetime64("NaT"), "datetime64"),
        (np.timedelta64("NaT"), "timedelta64"),
        ("tomorrow", "'tomorrow'"),
        ("", "an age such as"),
        ("d", "'d'"),
        ("-7d", "'-7d'"),
        ("7y", "'7y'"),
        ("30M", "'30M'"),
        ("2026-13-01", "2026-13-01"),
        (timedelta(days=-1), "days=-1"),
        ("999999999w", "since 1970"),
        ("1969-12-31T23:59:59Z", "since 1970"),
        ("0001-01-01T00:00:00+01:00", "since 1970"),
        (None, "None"),
        ([1], "list"),
        ("9" * 10_000, "99999"),
    ],
)
def test_an_invalid_time_is_refused(value: Any, says: str) -> None:
    """What cannot be read, what looks like seconds, and times before 1970: errors that name the use."""
    with pytest.raises(InputError, match=f"reading the first end.*{says}"):
        parse_time(value, now=NOW, name="the first end")


@given(
    st.text(max_size=40)
    | st.integers()
    | st.floats()
    | st.timedeltas()
    | st.dates()
    | st.datetimes()
)
def test_anything_is_a_time_or_an_input_error(value: Any) -> None:
    """No other error, whatever is given; what is a time is one since 1970 in UTC."""
    try:
        result = parse_time(value, now=NOW)
    except InputError:
        return
    assert result.tzinfo is UTC
    assert result >= datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90min", timedelta(minutes=90)),
        ("15min", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("1D", timedelta(days=1)),
        ("D", timedelta(days=1)),
        ("h", timedelta(hours=1)),
        ("W", timedelta(weeks=1)),
        ("7 days", timedelta(days=7)),
        ("1d12h", timedelta(hours=36)),
        ("1.5h", timedelta(minutes=90)),
        (pd.Timedelta("1D"), timedelta(days=1)),
        (np.timedelta64(2, "D"), timedelta(days=2)),
        (pd.offsets.Day(2), timedelta(days=2)),
        (pd.offsets.Hour(3), timedelta(hours=3)),
    ],
)
def test_durations_are_read(text: Any, span: timedelta) -> None:
    """Numbers with units, units alone as pandas writes them, and timedeltas of any library."""
    result = parse_duration(text)
    assert (result, type(result)) == (span, timedelta)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        7,
        "d7",
        "-1d",
        "0d",
        "M",
        "1M",
        "ME",
        pd.offsets.MonthEnd(1),
        pd.Period("2026-11-01", "D"),
        "999999w",
        "7d; drop",
        None,
        True,
        pd.NaT,
        timedelta(0),
        timedelta(days=40_000),
        "1d" * 9_999 + "x",
    ],
)
def test_other_durations_are_refused(text: Any) -> None:
    """Anything else, nothing, months, and more than a hundred years: an error that names the use."""
    with pytest.raises(InputError, match="retention"):
        parse_duration(text, name="retention")


@given(st.text(max_size=20) | st.integers() | st.timedeltas())
def test_anything_is_a_duration_or_an_input_error(value: Any) -> None:
    """No other error, whatever is given."""
    with suppress(InputError):
        assert timedelta(0) < parse_duration(value) <= timedelta(days=36_500)
